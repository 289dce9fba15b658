"""The commands of docs/operations.md, as written: a home is backed up, lost, restored elsewhere."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from postgres_schemas import POSTGRES, connect_to_postgres
from sqlalchemy import make_url

from cloister.errors import JournalMismatch, VerificationError
from cloister.flows.cli.app import run
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Owner
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import export_ledger, open_ledger, release_of, restore_ledger

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
COMMANDS = {
    match[1]: match[2]
    for match in re.finditer(r"```sh\n# (.+)\n((?:.+\n)+?)```", PAGE.read_text(encoding="utf-8"))
}
TOOLS = {"sqlite": "sqlite3", "postgresql": "pg_dump"}


@pytest.fixture
def databases() -> Iterator[Callable[[], str]]:
    """Makes empty databases on the test server."""
    made: list[str] = []

    def make() -> str:
        made.append(f"cloister_{uuid.uuid4().hex}")
        with connect_to_postgres() as server:
            server.execute(f"CREATE DATABASE {made[-1]}")
        url = make_url(POSTGRES).set(drivername="postgresql", database=made[-1])
        return url.render_as_string(hide_password=False)

    yield make
    with connect_to_postgres() as server:
        for name in made:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, home: Home, tmp_path, monkeypatch) -> str:
    """The kind of database that holds the ledger of the home."""
    if shutil.which(TOOLS[request.param]) is None:
        pytest.skip(f"{TOOLS[request.param]} is not installed")
    if request.param == "postgresql":
        export_ledger(home, tmp_path / "ledger.jsonl")
        monkeypatch.setenv("CLOISTER_LEDGER", request.getfixturevalue("databases")())
        for path in home.folder.glob("ledger.db*"):
            path.unlink()
        restore_ledger(Home.current(), tmp_path / "ledger.jsonl")
    monkeypatch.setenv("BACKUP", str(tmp_path / "backup"))
    return str(request.param)


def shell(block: str) -> str:
    """What a block of the page prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", COMMANDS[block]],
        env=os.environ | {"PATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Pending:
    """An unfinished release of half an epsilon."""

    id: str

    def draw(self, answers: int) -> None:
        """Begin a run, in a process that ends without an end of the run, and use some answers."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                journal = self.resumed()
                for position in range(answers):
                    journal.answer({"position": position}, lambda: np.frombuffer(os.urandom(80)))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def resumed(self) -> Journal:
        """Its journal, in a run that has begun."""
        home = Home.current()
        asked = release_of(home, self.id).request
        parts = {"data": "ab" * 32, "spec": asked.spec_digest, "code": asked.code_version}
        journal = Journal.open(home.journal(self.id), parts)
        ledger = open_ledger(home)
        ledger.spend(self.id, "engineer", journal.id, parts["data"])
        mark = journal.begin_run()
        journal.guard(ledger.begin_run(self.id, "engineer", mark, Owner.current()))
        return journal


def pending(released, number: int) -> Pending:
    home = Home.current()
    request = release_of(home, released.id).request
    changes = {"epsilon": "1/2", "spend_id": f"run-{number}", "release": f"r-000000000{number}"}
    asked = type(request).from_body(request.body | changes)
    return Pending(open_ledger(home).reserve(asked, "engineer").release.id)


def figures() -> list[tuple[object, ...]]:
    """What budgets hold."""
    budgets = open_ledger(Home.current()).budgets()
    return [(each.budget, each.spent, each.reserved, each.left, each.releases) for each in budgets]


def lost(home: Home, database: str, request: pytest.FixtureRequest, patch) -> None:
    """The home and its ledger are gone; the next one has another place."""
    shutil.rmtree(home.folder)
    (home.folder.parent / "elsewhere").mkdir()
    patch.setenv("CLOISTER_HOME", str(home.folder.parent / "elsewhere" / "home"))
    if database == "postgresql":
        patch.setenv("CLOISTER_LEDGER", request.getfixturevalue("databases")())


@pytest.mark.slow
def test_a_lost_home_is_restored_by_the_commands_of_the_page(
    home, released, database, request, monkeypatch
):
    whole, drawn_on = pending(released, 1), pending(released, 2)
    for each in (whole, drawn_on):
        each.draw(3)
    spent = figures()
    shell("files")
    drawn_on.draw(5)  # meanwhile
    names = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    shell(f"then the ledger, {names[database]}")
    lost(home, database, request, monkeypatch)

    shell("restore files, and the ledger with SQLite")
    if database == "postgresql":
        shell("restore the ledger, PostgreSQL")
    said = shell("then")
    assert said.startswith("0 problems in the ledger")
    assert whole.id in said and drawn_on.id in said
    ledger = open_ledger(Home.current())
    assert figures() == spent
    with whole.resumed() as journal:
        assert journal.recorded == 3
    with pytest.raises(JournalMismatch, match="older one was restored"):
        drawn_on.resumed()
    assert run(["review", "withdraw", drawn_on.id, "--reason", "restored"]) == 0
    assert figures() == spent and ledger.verify() == []
    assert run(["review", "approve", released.id, "--reason", "why"]) == 0


@pytest.mark.slow
def test_a_ledger_copied_before_the_files_admits_nothing(home, released, monkeypatch, tmp_path):
    """The other way round is refused: what was charged meanwhile would be forgotten."""
    early = tmp_path / "early.db"
    shutil.copyfile(home.folder / "ledger.db", early)
    pending(released, 1)
    shutil.copyfile(early, home.folder / "ledger.db")
    for path in home.folder.glob("ledger.db-*"):
        path.unlink()
    with pytest.raises(VerificationError, match=r"its end was cut off.*Nothing was charged"):
        pending(released, 2)


@pytest.mark.slow
def test_a_backup_brings_back_what_was_deleted_and_retention_deletes_it_again(
    home, released, tmp_path, monkeypatch
):
    monkeypatch.setenv("BACKUP", str(tmp_path / "backup"))
    shell("files")
    assert run(["review", "approve", released.id, "--reason", "why"]) == 0
    shell("then the ledger, SQLite")
    lost(home, "sqlite", None, monkeypatch)
    shell("restore files, and the ledger with SQLite")
    assert run(["verify"]) == 1
    assert run(["retention", "run"]) == 0
    assert not Home.current().journal(released.id).exists()
