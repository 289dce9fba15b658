"""A ledger as whoever holds a home can forge it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloister.privacy.ledger import Ledger
from cloister.privacy.ledger.entries import Entry
from cloister.privacy.ledger.store import Store
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger


def rewritten(
    home: Home, change: Callable[[Entry], dict[str, Any]], last: int | None = None
) -> None:
    """Write a ledger with other entries, and make the chain and the note of its end fit."""
    entries = open_ledger(home).entries()[:last]
    path_of_ledger = Path(home.ledger)
    for path in path_of_ledger.parent.glob(path_of_ledger.name + "*"):
        path.unlink()
    store, before = Store.open(path_of_ledger, 5.0), None
    with store.writing() as connection:
        for entry in entries:
            made = Entry.after(before, entry.time, entry.kind, entry.slot, change(entry))
            store.append(connection, made)
            before = made
    home.end.write_text(f"{before.seq}:{before.hash}\n")
    assert Ledger.open(path_of_ledger).verify() == []
