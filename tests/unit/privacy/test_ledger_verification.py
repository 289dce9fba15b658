"""Verification names what was altered, from the entries alone."""

import hashlib
import json
import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_requests import ask as request

from cloister.errors import CloisterError, InputError, StorageError
from cloister.privacy.ledger import (
    Anchor,
    Entry,
    Ledger,
    ReservationRequest,
    State,
    verify_chain,
    verify_export,
)
from cloister.privacy.ledger.entries import canonical

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def ask(number: int) -> ReservationRequest:
    events = {"type": "gaussian", "noise": "3/2", "label": 'Ünïcode "quoted" \n'}
    return request("adult é", "1/3", events=events, spend_id=f"run-{number}", release=f"r-{number}")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Three releases in different states: eight entries."""
    opened = Ledger.open(tmp_path_factory.mktemp("ledger") / "l.db")
    opened.grant("adult é", "row", 1, "1e-6", "ever", "officer", "why")
    for number in range(3):
        opened.reserve(ask(number), "flow")
    opened.spend("r-0", "flow", "journal-1", "data-1")
    opened.advance("r-0", State.CANDIDATE, "flow", "evaluated", {"certificate": "cd" * 32})
    opened.advance("r-0", State.APPROVED, "reviewer", "fine")
    opened.advance("r-2", State.REFUNDED, "flow", "not needed")
    return opened


@pytest.fixture(scope="module")
def exported(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "ledger.ndjson"
    assert ledger.export(path) == ledger.anchor()
    return path


def chain(
    *links: tuple[str, str, dict[str, object]], time: str = "2026-01-01T00:00:00.000000Z"
) -> list[Entry]:
    """A chain with correct hashes, whatever its entries hold."""
    entries: list[Entry] = []
    for kind, slot, body in links:
        entries.append(Entry.after(entries[-1] if entries else None, time, kind, slot, body))
    return entries


def forged(entries: list[Entry], index: int, **changes: object) -> list[Entry]:
    """``entries`` with one changed, and every hash from there on computed again."""
    changed = replace(entries[index], **changes)  # type: ignore[arg-type]
    parts = [changed if n == index else entry for n, entry in enumerate(entries)]
    last: Entry | None = None
    result = []
    for part in parts:
        last = Entry.after(last, part.time, part.kind, part.slot, part.body)
        result.append(last)
    return result


def test_a_ledger_as_written_has_no_findings(ledger: Ledger, exported: Path) -> None:
    anchors = [entry.anchor for entry in ledger.entries()]
    assert len(anchors) == 8
    assert (
        ledger.verify(anchors)
        == verify_export(exported, anchors)
        == verify_chain(ledger.entries(), anchors)
        == []
    )


def test_an_empty_ledger_is_sound_an_emptied_export_is_not_and_a_missing_one_is_an_error(
    ledger: Ledger, tmp_path: Path
) -> None:
    empty = Ledger.open(tmp_path / "l.db")
    assert empty.export(tmp_path / "e") is None and empty.anchor() is None
    assert empty.verify() == verify_export(tmp_path / "e") == []
    assert [finding.entry for finding in verify_export(tmp_path / "e", [Anchor(1, "x")])] == [1]
    with pytest.raises(StorageError):
        verify_export(tmp_path / "none")
    with pytest.raises(StorageError):
        ledger.export(tmp_path / "none" / "below")


def flip_every_byte(exported: Path, copy: Path, bits: Sequence[int]) -> int:
    """Flip bits of each byte in turn.

    The number of flips, each of which named the entry that holds it.
    """
    whole = exported.read_bytes()
    for offset in range(len(whole)):
        for bit in bits:
            copy.write_bytes(whole[:offset] + bytes([whole[offset] ^ bit]) + whole[offset + 1 :])
            assert 1 + whole[:offset].count(b"\n") in {
                finding.entry for finding in verify_export(copy)
            }, (offset, bit)
    return len(whole) * len(bits)


def test_every_flipped_byte_of_an_export_names_its_entry(exported: Path, tmp_path: Path) -> None:
    assert flip_every_byte(exported, tmp_path / "copy", [0x20]) > 3000


@pytest.mark.slow
def test_every_flipped_bit_of_an_export_names_its_entry(exported: Path, tmp_path: Path) -> None:
    assert flip_every_byte(exported, tmp_path / "copy", [1 << bit for bit in range(8)]) > 24000


def named(entries: list[Entry], anchors: Sequence[Anchor] = ()) -> list[int]:
    """The entries that verification names."""
    return [finding.entry for finding in verify_chain(entries, anchors)]


def test_a_removed_entry_is_named_and_a_cut_tail_is_found_by_an_anchor(ledger: Ledger) -> None:
    entries = ledger.entries()
    last = [entries[-1].anchor]
    for index in range(8):
        assert index + 1 in named(entries[:index] + entries[index + 1 :], last)
        (finding,) = verify_chain(entries[:index], last)
        assert (finding.entry, finding.problem) == (8, "is missing: a certificate vouches for it")


def test_reordered_repeated_inserted_and_altered_entries_are_named(ledger: Ledger) -> None:
    """An altered one with a new hash breaks the next."""
    entries = ledger.entries()
    for index in range(7):
        before, own, after = entries[:index], entries[index], entries[index + 1 :]
        assert index + 1 in named([*before, after[0], own, *after[1:]])
        assert index + 1 in named([*before, own, own, *after])
        extra = Entry.after(own, own.time, "rejected", "move/x/rejected", {"release": "x"})
        assert index + 2 in named([*before, own, extra, *after])
        changed = forged(entries, index, body={**own.body, "by": "someone"})
        assert named([*before, changed[index], *after]) == [index + 2]


def test_a_chain_rewritten_to_its_end_is_found_by_an_anchor_or_a_charge_above_its_budget(ledger):
    entries = ledger.entries()
    changed = forged(entries, 0, body={**entries[0].body, "by": "someone"})
    assert named(changed) == []
    assert named(changed, [entries[5].anchor]) == [6]
    findings = verify_chain(forged(entries, 0, body={**entries[0].body, "epsilon": "2/3"}))
    assert findings[0].entry == 4 and "was requested" in findings[0].problem
    assert named(forged(entries, 3, body={**entries[3].body, "epsilon": "34/100"})) == [4]


@pytest.mark.parametrize(
    ("index", "changes"),
    [
        (0, {"kind": "budget_lent"}),
        (0, {"slot": "grant/2"}),
        (0, {"time": "2999-01-01T00:00:00.000000Z"}),
        (1, {"time": "yesterday"}),
        (1, {"slot": "spend/run-0/1"}),
        (2, {"body": {"release": "r-9"}}),
        (4, {"kind": "published"}),
        (5, {"body": {"release": "r-0", "by": "", "reason": "", "evidence": {}}}),
        (5, {"body": {"release": "r-0", "by": "x", "reason": "", "evidence": 3}}),
        (6, {"kind": "spent"}),
    ],
)
def test_what_no_ledger_writes_is_found_in_a_sound_chain(ledger, index, changes) -> None:
    assert min(named(forged(ledger.entries(), index, **changes))) in (index + 1, index + 2)


@settings(max_examples=examples(200))
@given(
    index=st.integers(0, 7),
    key=st.sampled_from(["release", "epsilon", "delta", "dataset", "by", "evidence"]),
    value=JSON,
)
def test_verification_never_fails_on_a_forged_body(ledger, index, key, value) -> None:
    entries = ledger.entries()
    verify_chain(forged(entries, index, body={**entries[index].body, key: value}))


@settings(max_examples=examples(200))
@given(
    lines=st.lists(
        st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()), min_size=1, max_size=4
    )
)
def test_verification_never_fails_on_rubbish(tmp_path_factory, lines) -> None:
    path = tmp_path_factory.mktemp("rubbish") / "e"
    path.write_bytes(b"\n".join([*lines, b"x"]))
    assert verify_export(path)


@given(JSON)
def test_canonical_text_is_ascii_and_reads_back(value: object) -> None:
    assert canonical(value).isascii()
    assert canonical(json.loads(canonical(value))) == canonical(value)


@pytest.mark.parametrize(
    "value", [1.0, float("nan"), {1: 2}, {"a": {2.5}}, b"x", object(), [{"deep": [0.5]}]]
)
def test_floats_and_strangers_have_no_canonical_text(value: object) -> None:
    with pytest.raises(InputError):
        canonical(value)


def test_the_hash_of_an_entry_is_the_one_of_its_documented_text() -> None:
    entry = chain(("budget_granted", "grant/1", {"a": "1/2"}))[0]
    text = (
        '{"body":{"a":"1/2"},"kind":"budget_granted","previous":"' + "0" * 64 + '",'
        '"seq":1,"slot":"grant/1","time":"2026-01-01T00:00:00.000000Z"}'
    )
    assert entry.hash == hashlib.sha256(text.encode()).hexdigest()
    assert entry.hash == "7e65b71cb4880d3eece1458d83b1e59763eeb9d9cf2fcdfeed2745883767623a"
    assert json.loads(entry.line) == json.loads(text) | {"hash": entry.hash}


def test_an_export_is_private_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    path, growing = tmp_path / "e", Ledger.open(tmp_path / "l.db")
    for _ in range(2):
        growing.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
        assert growing.export(path) == growing.anchor()
        assert verify_export(path) == []
        assert path.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} <= {"e", "l.db", "l.db-wal", "l.db-shm"}


def test_an_export_never_replaces_another_file_an_altered_one_or_that_of_another_ledger(
    ledger: Ledger, exported: Path, tmp_path: Path
) -> None:
    theirs = Ledger.open(tmp_path / "l.db")
    theirs.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
    theirs.export(tmp_path / "theirs")
    altered = exported.read_bytes().replace(b"fine", b"poor")
    for content in (b"", b"mine", b"{}\n", altered, (tmp_path / "theirs").read_bytes()):
        (tmp_path / "held").write_bytes(content)
        with pytest.raises(StorageError, match="not an earlier export"):
            ledger.export(tmp_path / "held")
        assert (tmp_path / "held").read_bytes() == content


def test_an_export_never_replaces_what_is_no_plain_file(ledger, exported, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(exported)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    for target in (
        *(tmp_path / name for name in ("pipe", "link", "dangling", "folder")),
        Path("/dev/null"),
    ):
        before = target.lstat()
        with pytest.raises(StorageError):
            ledger.export(target)
        assert target.lstat().st_ino == before.st_ino and target.lstat().st_mode == before.st_mode
    assert not (tmp_path / "none").exists()


WEAK = (
    "CREATE TRIGGER cloister_entries_delete BEFORE DELETE ON cloister_entries WHEN 0 "
    "BEGIN SELECT 1; END"
)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            ["DROP TRIGGER cloister_entries_delete", WEAK],
            "cloister_entries_delete is not as a ledger makes it",
        ),
        (["DROP TRIGGER cloister_entries_update"], "cloister_entries_update is missing"),
        (
            [WEAK.replace("entries_delete", "entries_quiet")],
            "cloister_entries_quiet is in the database",
        ),
        (["CREATE TABLE notes (a)"], "notes is in the database"),
    ],
)
def test_the_table_and_its_guards_are_compared_word_by_word(tmp_path, statements, said) -> None:
    opened = Ledger.open(tmp_path / "l.db")
    opened.grant("adult", "row", 1, "1e-6", "ever", "officer", "why")
    with closing(sqlite3.connect(tmp_path / "l.db")) as database, database:
        for statement in statements:
            database.execute(statement)
    assert [finding.problem for finding in opened.verify() if said in finding.problem]


def test_a_database_whose_table_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "l.db")
    with closing(sqlite3.connect(tmp_path / "l.db")) as database, database:
        database.execute("ALTER TABLE cloister_entries RENAME TO others")
    with pytest.raises(StorageError, match="without the table of a ledger"):
        Ledger.open(tmp_path / "l.db")


def test_a_flip_in_the_database_is_found_or_changes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """Entries read the same, or there is a finding, or the database is refused."""
    with closing(sqlite3.connect(ledger.store.engine.url.database)) as database:
        whole = database.serialize()
    sound, refused, rng = ledger.entries(), 0, random.Random(5)
    for number in range(60):
        offset = rng.randrange(len(whole))
        path = tmp_path / f"{number}.db"
        path.write_bytes(
            whole[:offset] + bytes([whole[offset] ^ 1 << rng.randrange(8)]) + whole[offset + 1 :]
        )
        try:
            opened = Ledger.open(path)
            findings = opened.verify([sound[-1].anchor])
            refused += bool(findings)
            assert findings or opened.entries() == sound
        except CloisterError:
            refused += 1
        path.unlink()
    assert refused > 5
