"""Any words on the command line: one clear error with exit code 2, soon, and nothing spent."""

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloister.privacy.ledger import Ledger

SAMPLE, ALL, SEED = 8, 250, 20261122

SPEC = """
name: clubs
source: {path: DATA}
privacy: {unit: row, relation: add_remove, rows: {public: 2000},
  budget: {epsilon: 4, delta: 1e-5, per: year}}
attributes:
  region: {type: categorical, values: [north, south, east], provenance: map}
  age: {type: integer, min: 18, max: 80, bins: 16, provenance: MARK}
constraints: [{name: young, deny: "t.age < 20 and t.region = 'east'"}]
release: {method: independent, epsilon: 1, delta: 1e-6}
"""
NUMBERS = [
    *("", " ", "9" * 5000, "1" + "0" * 12, "1" + "0" * 30, "-" + "9" * 400, "\u0661", "--"),
    *"-1 0 1e-300 1e300 1e400 nan inf -inf one 0x10 1/0 1e12".split(),
    *"1_000 1,5 -1e-9 1/3/4 1e-99999999999".split(),
]
WORDS = [
    *("", " ", "../x", "../../etc/passwd", "/", ".", "a" * 300, "a" * 5000, "a\nb", "\x1b[31mred"),
    *("\x7f", "'; drop", "%s{}", "\u202e"),
]
ODD: list[str | bytes] = [*WORDS, b"\xff\xfe", b"caf\xe9", "\U0001f600"]
PLACES: list[str | bytes] = [
    *ODD,
    *"/dev/zero /dev/null /dev/full /dev/stdin pipe folder link loop none/none".split(),
    *("spec.yaml/x", "home", "home/out", "/proc/self/mem", "/proc/none", "x/" * 3000),
]
NO_OUT: list[str | bytes] = [*"/dev/null /dev/full pipe link loop spec.yaml/x".split(), b"\xff"]
SAID: list[str | bytes] = ["", " ", "a\nb", "\x1b[31m", "a" * 5000, b"\xff"]
BUDGET = "--epsilon=1", "--delta=0", "--per=ever", "--reason=why"
OPTIONS: dict[tuple[str, ...], dict[str, list[str | bytes]]] = {
    ("release", "spec.yaml"): {
        "--epsilon": [*NUMBERS, "5"],
        "--delta": [*NUMBERS, "0.5", "1"],
        "--rows": [*NUMBERS],
        "--method": [*ODD, "magic", "Kamino"],
        "--seed-sampling": [*NUMBERS],
        "--evaluate": [*ODD, "most"],
        "--data": PLACES,
        "--out": [*NO_OUT, "home", "home/out", ".", "/", ""],
    },
    ("plan", "spec.yaml"): {
        **dict.fromkeys(("--epsilon", "--delta", "--rows"), [*NUMBERS]),
        "--method": ODD,
    },
    ("spec", "measure", "draft.yaml", "--epsilon=1", "--delta=1e-6", "--out=new.yaml"): {
        **dict.fromkeys(("--epsilon", "--delta"), [*NUMBERS]),
        "--data": PLACES,
        "--out": [*NO_OUT, "folder", "spec.yaml", "a" * 300],
    },
    ("evaluate", "spec.yaml", "--data=data.csv", "--synthetic=data.csv", "--level=none"): {
        **dict.fromkeys(("--data", "--synthetic", "--held-out"), PLACES),
        **dict.fromkeys(("--level", "--panel", "--target"), ODD),
    },
    ("deploy", "spec.yaml", "--cron=0 3 1 * *"): {
        "--cron": [*ODD, "* * * * * *", "0 3 31 2 *", "99 99 99 99 99", "*/0 * * * *", "a b c d e"],
        "--timezone": [*ODD, "Mars/Phobos"],
        **dict.fromkeys(("--epsilon", "--rows"), [*NUMBERS]),
        "--data": PLACES,
    },
    ("sample", "r-0123456789", "--rows=10", "--out=more.csv"): {
        **dict.fromkeys(("--rows", "--seed"), [*NUMBERS]),
        "--where": [*ODD, "=", "a", "a=b=c"],
        "--out": PLACES,
    },
    ("budget", "grant", "clubs", *BUDGET, "--by=me"): {
        "--epsilon": ["", *"nan -1 1/0 1e400 1e-99999999999".split(), "9" * 5000],
        "--delta": ["", *"nan -1 1 2 1e-99999999999".split()],
        "--per": [*ODD, "week"],
        **dict.fromkeys(("--reason", "--by"), SAID),
        "--unit": ["", "rows", "key:", "key:a\nb", "key:" + "a" * 300, b"key:\xff"],
    },
}
FIRST: dict[tuple[str, ...], list[str | bytes]] = {
    **{(word,): PLACES for word in ("plan", "release", "benchmark", "verify")},
    **{("spec", word): PLACES for word in ("check", "draft")},
    **{words: ODD for words in (("ledger", "show"), ("budget", "show"), ("report",), ())},
    ("review", "approve", "--reason=why"): ODD,
    ("ledger", "export"): ["/dev/null", "/dev/full", "folder", "none/none", b"\xff"],
    ("budget", "grant", *BUDGET): [*ODD, "-x", "a/b", "."],
    ("constraints", "check", "--data=data.csv"): PLACES,
}


def commands() -> list[tuple[str | bytes, ...]]:
    """Every command with one word that cannot be used."""
    found: list[tuple[str | bytes, ...]] = []
    for command, options in OPTIONS.items():
        for name, values in options.items():
            kept = [word for word in command if not word.startswith(f"{name}=")]
            found += [
                (*kept, name.encode() + b"=" + (v if isinstance(v, bytes) else v.encode()))
                for v in values
            ]
    return found + [(*command, word) for command, words in FIRST.items() for word in words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("words")
    data = made / "data.csv"
    data.write_text("region,age\n" + "north,30\nsouth,40\neast,50\n" * 600)
    for name, mark in (("spec", "form"), ("draft", "data-derived")):
        (made / f"{name}.yaml").write_text(SPEC.replace("DATA", str(data)).replace("MARK", mark))
    (made / "folder").mkdir()
    (made / "folder" / "file").write_text("mine")
    (made / "link").symlink_to(made / "nowhere")
    (made / "loop").symlink_to(made / "loop")
    os.mkfifo(made / "pipe")
    return made


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """The URL of a port where nobody listens, so that no flow ever starts."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/api"


@pytest.mark.parametrize(
    "count", [SAMPLE, pytest.param(ALL, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_a_word_that_cannot_be_used_is_refused(folder, children, nobody, count) -> None:
    chosen = random.Random(SEED).sample(commands(), count)
    before = (folder / "folder" / "file").read_text()
    found, seconds = {}, [0.0]
    for words in chosen:
        ended = children.run(
            *words, folder=folder, PREFECT_API_URL=nobody, CLOISTER_HOME=str(folder / "home")
        )
        seconds.append(ended.seconds)
        if ended.faults:
            found[words] = [*ended.faults, ended.err[-300:]]
    print(f"\n{count} command lines, at most {max(seconds):.1f} s of CPU time each")
    assert found == {}
    assert (folder / "folder" / "file").read_text() == before
    ledger = folder / "home" / "ledger.db"
    assert not ledger.exists() or Ledger.open(ledger).releases() == []


NO_TABLES = ["/dev/null", "/dev/zero", "/proc/self/mem", "/proc/version", "pipe", "folder", "link"]
NO_SEEDS = ["-1", str(2**63), "1" + "0" * 30, "9" * 5000, "one", ""]
REFUSED = [
    *[("release", "spec.yaml", f"--data={name}") for name in NO_TABLES],
    *[("deploy", "spec.yaml", "--cron=0 3 1 * *", f"--data={name}") for name in NO_TABLES],
    *[("release", "spec.yaml", f"--seed-sampling={seed}") for seed in NO_SEEDS],
]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(each, marks=[pytest.mark.slow] * (at % 5 > 0))
        for at, each in enumerate(REFUSED)
    ],
    ids=lambda words: f"{words[0]} {words[-1][:40]}",
)
def test_no_table_and_no_seed_are_refused_before_a_server_is_asked(folder, children, nobody, words):
    home = folder / "untouched"
    ended = children.run(*words, folder=folder, PREFECT_API_URL=nobody, CLOISTER_HOME=str(home))
    assert (ended.code, ended.faults) == (2, [])
    assert "Prefect" not in ended.err
    assert any(words in ended.err for words in ("the data", "--data", "seed"))
    assert not (home / "ledger.db").exists()
    assert not (home / "prefect").exists()
