"""Which device is meant, what is said of it, and what is refused before a charge."""

import json

import pytest

from cloister import devices
from cloister.devices import CPU, Device, require_memory, resolve_device
from cloister.errors import InputError, PlanError
from flows.cli.app import run
from tasks.ledger.transitions import spend_id
from tasks.requests.options import Options
from tasks.requests.plan import plan_of
from tasks.requests.plan_report.training_device import device_words, training_device
from tasks.requests.public_context import public_context_of
from tasks.requests.resolved import ResolvedRequest


@pytest.fixture
def two(monkeypatch):
    """A machine with two CUDA devices of 1,000 MiB."""
    monkeypatch.setattr(devices, "count_cuda_devices", lambda: 2)
    monkeypatch.setattr(
        devices, "free_memory", lambda device: None if device == CPU else 1000 << 20
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


def test_without_cuda_auto_is_the_processor(none):
    assert resolve_device("auto") == CPU
    with pytest.raises(InputError, match="cuda:0: torch finds no CUDA devices"):
        resolve_device("cuda")


@pytest.mark.parametrize("asked", ["gpu", "cuda:", "cuda:x", "CUDA", "cuda:0 ", "mps"])
def test_other_names_are_refused(asked):
    with pytest.raises(InputError, match="auto, cpu, cuda or cuda:NUMBER"):
        resolve_device(asked)


def test_a_device_without_the_memory_is_refused(two):
    require_memory(CPU, 10**15)
    require_memory(Device(1), 900 << 20)
    with pytest.raises(PlanError, match=r"cuda:1 has 1,000 MiB free.*about 2,048.*--device cpu"):
        require_memory(Device(1), 2 << 30)


def asked_on(place, device, method="kamino"):
    return ResolvedRequest.of(place.spec, Options(method, device=device), "me")


def test_a_release_is_the_same_on_every_device(place, two):
    requests = [asked_on(place, device) for device in ("cpu", "cuda:1")]
    contexts = [public_context_of(request) for request in requests]
    assert [context.one.device for context in contexts] == [CPU, Device(1)]
    assert len({spend_id(*pair) for pair in zip(requests, contexts, strict=True)}) == 1
    assert plan_of(requests[0]) == plan_of(requests[1])
    assert ResolvedRequest.from_json(json.loads(json.dumps(requests[1].to_json()))) == requests[1]


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


def test_a_device_without_memory_leaves_with_two_and_charges_nothing(
    place, two, capsys, monkeypatch
):
    monkeypatch.setattr(devices, "free_memory", lambda device: 1 << 20)
    assert run(["release", str(place.spec), "--method", "kamino", "--device", "cuda"]) == 2
    assert "device cuda:0 has 1 MiB free" in " ".join(capsys.readouterr().err.split())
    assert not (place.home.folder / "releases").exists()
