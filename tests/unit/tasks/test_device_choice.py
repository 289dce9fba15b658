"""Which device is meant, what is said of it, and what is refused before a charge."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cloister import devices
from cloister.devices import CPU, Device, require_memory, resolve_device
from cloister.errors import InputError, PlanError
from cloister.flows.cli.app import run
from cloister.tasks.ledger.access import spend_id
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.plan_report import device_words, training_device
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ResolvedRequest, public_context_of, resolve


@pytest.fixture
def two(monkeypatch):
    """A machine of 4,000 MiB with two CUDA devices of 1,000 MiB."""
    monkeypatch.setattr(devices, "count_cuda_devices", lambda: 2)
    monkeypatch.setattr(
        devices, "free_memory", lambda device: 4000 << 20 if device == CPU else 1000 << 20
    )


@pytest.fixture
def none(monkeypatch):
    """A machine without one."""
    monkeypatch.setattr(devices, "count_cuda_devices", lambda: 0)


def test_devices_have_the_names_that_were_asked_for(two):
    assert resolve_device("auto") == resolve_device("cuda") == Device(0)
    assert str(resolve_device("cuda:1")) == "cuda:1"
    assert resolve_device("cpu") == CPU
    with pytest.raises(InputError, match="cuda:2: torch finds 2 CUDA devices"):
        resolve_device("cuda:2")
    for name in ("gpu", "cuda:", "cuda:x", "CUDA", "cuda:0 ", "mps"):
        with pytest.raises(InputError, match="auto, cpu, cuda or cuda:NUMBER"):
            resolve_device(name)


def test_without_cuda_auto_is_the_processor(none):
    assert resolve_device("auto") == CPU
    with pytest.raises(InputError, match="cuda:0: torch finds no CUDA devices"):
        resolve_device("cuda")


def test_a_device_without_the_memory_is_refused(two):
    require_memory(CPU, 3900 << 20)
    with pytest.raises(PlanError, match=r"this machine.*has 4,000 MiB free.*about 5,120; end"):
        require_memory(CPU, 5 << 30)
    require_memory(Device(1), 900 << 20)
    with pytest.raises(PlanError, match=r"cuda:1 has 1,000 MiB free.*about 2,048.*--device cpu"):
        require_memory(Device(1), 2 << 30)


def asked_on(place, device, method="kamino"):
    return resolve(ReleaseRequest(spec=place.spec, method=method, device=device))


def test_a_release_is_the_same_on_every_device(place, two):
    requests = [asked_on(place, device) for device in ("cpu", "cuda:1")]
    contexts = [public_context_of(request) for request in requests]
    assert [context.task.lead.device for context in contexts] == [CPU, Device(1)]
    assert len({spend_id(*pair) for pair in zip(requests, contexts, strict=True)}) == 1
    assert plan_of(requests[0]) == plan_of(requests[1])
    assert ResolvedRequest.model_validate_json(requests[1].model_dump_json()) == requests[1]


def test_the_plan_says_where_it_trains_and_what_that_promises(place, two, capsys):
    for method, device, words in (
        ("mixture", "cuda", "cuda:0, about 0.7 GiB, with noise that the processor makes: a run"),
        ("kamino", "cpu", "cpu: a run that resumes on this machine has the same model"),
        ("dpview", "auto", "cpu: method dpview trains nothing; cuda:0 for the evaluation"),
    ):
        request = asked_on(place, device, method)
        assert device_words(request, plan_of(request)).startswith(words)
    assert training_device(request, plan_of(request)) == CPU
    place.edit("release: {", "release: {device: 'cuda:1', ")
    assert run(["plan", str(place.spec), "--method", "kamino", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["device"] == "cuda:1"
    assert "but for rounding" in made["determinism"]
    assert made["forecast"]["device_memory"] > 500 << 20


def test_a_device_that_is_not_there_leaves_with_two_and_charges_nothing(place, none, capsys):
    for command in ("release", "plan"):
        assert run([command, str(place.spec), "--device", "cuda"]) == 2
        assert "torch finds no CUDA devices" in " ".join(capsys.readouterr().err.split())
    assert run(["release", str(place.spec), "--device", "gpu"]) == 2
    place.edit("release: {", "release: {device: gpu, ")
    capsys.readouterr()
    assert run(["release", str(place.spec)]) == 2
    assert "release.device" in capsys.readouterr().err
    assert not (place.home.folder / "releases").exists()


def test_a_device_without_memory_leaves_with_two_uncharged(place, two, capsys, monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: 1 << 20)
    assert run(["release", str(place.spec), "--method", "kamino", "--device", "cuda"]) == 2
    assert "device cuda:0 has 1 MiB free" in " ".join(capsys.readouterr().err.split())
    assert not (place.home.folder / "releases").exists()


VERSION_1 = ("4:memory:/job/part", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
VERSION_2 = ("0::/job/part", ".", "memory.max", "memory.current")


@pytest.mark.parametrize(("named", "tree", "limit", "used"), [VERSION_1, VERSION_2])
def test_a_control_group_has_no_more_free_than_those_it_is_in(
    tmp_path, monkeypatch, named, tree, limit, used
):
    """The group of the job leaves 300 MiB, of which its part may have any number."""
    (tmp_path / "self").write_text(f"7:cpu:/else\n{named}\n")
    unlimited = "max" if limit == "memory.max" else str(2**63 - 4096)
    for group, most in (("job/part", unlimited), ("job", str(500 << 20))):
        folder = tmp_path / tree / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit).write_text(most + "\n")
        (folder / used).write_text(f"{250 << 20}\n")
        (folder / "memory.stat").write_text(f"cache 1\ninactive_file {50 << 20}\n")
    monkeypatch.setattr(devices, "_CONTROL_GROUPS", tmp_path / "self")
    monkeypatch.setattr(devices, "_TREES", tmp_path)
    resident = psutil.Process().memory_info().rss
    assert devices.free_memory(CPU) == pytest.approx(resident + (300 << 20), abs=50 << 20)
    monkeypatch.setattr(devices, "_CONTROL_GROUPS", tmp_path / "no Linux")
    assert devices.free_memory(CPU) > 1 << 30


@pytest.fixture
def small_group():
    """A control group of 320 MiB, which only root can make."""
    trees, limit = Path("/sys/fs/cgroup"), "memory.max"
    if (trees / "memory").exists():
        trees, limit = trees / "memory", "memory.limit_in_bytes"
    group = trees / f"cloister-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("a control group can only be made by root")
    try:
        if not (group / limit).exists():
            pytest.skip("control groups have no limit of memory here")
        (group / limit).write_text(str(320 << 20))
        yield group
    finally:
        group.rmdir()


@pytest.mark.slow
def test_a_release_that_does_not_fit_in_its_control_group_charges_nothing(place, small_group):
    """It needs more than the group may have."""
    program = (
        "import sys; from cloister.flows.cli import app, console; "
        "console.PULSE = float('inf'); sys.exit(app.run(sys.argv[1:]))"
    )
    enter = f'echo $$ > {small_group}/cgroup.procs && exec "$@"'
    words = [sys.executable, "-c", program, "release", str(place.spec), "--method", "independent"]
    done = subprocess.run(
        ["sh", "-c", enter, "sh", *words], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "this job's share of it, has" in " ".join(done.stderr.split())
    assert not place.home.folder.exists()
