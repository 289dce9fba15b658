"""Objects that lead to sensitive rows show a name alone, are never copied, and end in time."""

import copy
import gc
import pickle
import weakref
from functools import partial

import numpy as np
import pytest

from cloister.errors import CloisterError
from cloister.hashing import keyed_rows
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Anchor
from cloister.tasks.data.session import Digests, HashedRows, RowSource, Session, Spent, keyed_digest


def late_imports():
    global visit_collection
    from prefect.utilities.collections import visit_collection


CANARY = "CANARY-81725"


class Rows:
    """Rows that can be watched: a weak reference to them dies when they are forgotten."""

    def __init__(self):
        self.cells = [CANARY, np.arange(3)]

    def __repr__(self):
        return CANARY


class Memory(RowSource):
    """Rows that lie nowhere."""

    def context(self, order):
        raise NotImplementedError

    def read_rows(self, release, order, home):
        return Rows(), Digests("digest", "fingerprint")

    def door(self, rows, neighbours, planned, journal, home):
        raise NotImplementedError


def tokens(session, folder):
    """A session, what it opened and what was spent for it, with a journal."""
    opened = session.open("r-1", None, None)
    journal = session.open_journal(folder / "journal", {"data": "digest"})
    return opened, Spent(opened, session.hold("r-1", Rows()), journal, Anchor(3, "hash"))


@pytest.fixture
def run(tmp_path):
    with Session(Memory()) as session:
        yield session, *tokens(session, tmp_path)


def test_an_orchestrator_that_looks_for_futures_stays_outside(run):
    for token in run:
        seen = []
        parameters = {"token": token}
        assert (
            visit_collection(parameters, lambda part: seen.append(part) or part, return_data=True)
            is parameters
        )
        assert seen == [parameters, "token", token]


def test_rows_and_door_are_forgotten_at_the_end_even_by_who_kept_a_token(tmp_path):
    with pytest.raises(ZeroDivisionError), Session(Memory()) as session:
        opened, spent = tokens(session, tmp_path)
        alive = [weakref.ref(opened.rows.value), weakref.ref(spent.private)]
        assert spent.rows is opened.rows.value
        1 / 0  # noqa: B018
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    for ask in (lambda: spent.rows, lambda: spent.private, lambda: opened.rows.value):
        with pytest.raises(CloisterError, match="r-1 has ended"):
            ask()
    Journal.open(tmp_path / "journal", {"data": "digest"}).close()  # its lock was given up


def test_rows_are_forgotten_though_the_journal_cannot_be_closed(tmp_path, monkeypatch):
    close = Journal.close

    def failing(journal):
        close(journal)
        raise OSError("full")

    monkeypatch.setattr(Journal, "close", failing)
    with pytest.raises(OSError, match="full"), Session(Memory()) as session:
        opened, _ = tokens(session, tmp_path)
        alive = weakref.ref(opened.rows.value)
    gc.collect()
    assert alive() is None


def test_what_leads_to_rows_shows_the_release_alone_and_is_never_copied_or_serialised(run):
    for token in run:
        for text in (repr(token), str(token), f"{token}", f"{token!r}"):
            assert CANARY not in text
    assert [repr(token) for token in run] == ["<Session>", "<Opened of r-1>", "<Spent of r-1>"]
    for token in (*run, run[1].rows):
        assert not hasattr(token, "__dict__")
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor serialised"):
                way(token)


def hashed(columns):
    """Columns by name, as digests hold them."""
    return {"people": HashedRows(list(columns), partial(keyed_rows, list(columns.values())))}


def test_digests_of_the_same_rows_tell_two_certificates_nothing():
    """They are those of one release and one home, so that nobody can compare the rows of two."""
    sexes = np.ones(5, dtype=np.int8)
    columns = hashed({"age": np.arange(5), "sex": sexes})
    mine = keyed_digest(b"data", columns, "r-1", bytes(32))
    assert keyed_digest(b"data", columns, "r-1", bytes(32)) == mine
    changed = hashed({"age": np.arange(1, 6), "sex": sexes})
    digests = {
        keyed_digest(b"data", columns, "r-2", bytes(32)),
        keyed_digest(b"data", columns, "r-1", b"1" * 32),
        keyed_digest(b"columns", columns, "r-1", bytes(32)),
        keyed_digest(b"data", changed, "r-1", bytes(32)),
    }
    assert len(digests - {mine}) == 4


def test_a_digest_is_of_rows_in_any_order_and_of_what_each_holds_together():
    ages, sexes = np.array([31, 31, 44, 59]), np.array([0, 1, 1, 1], dtype=np.int8)

    def digest(ages, sexes):
        return keyed_digest(b"data", hashed({"age": ages, "sex": sexes}), "r-1", bytes(32))

    order = np.array([2, 0, 3, 1])
    assert digest(ages[order], sexes[order]) == digest(ages, sexes)
    assert digest(ages[order], sexes) != digest(ages, sexes)
    assert digest(ages[:3], sexes[:3]) != digest(ages, sexes) != digest(ages[::-1], sexes)
