"""Paths of a release beside the plain one: a series, a resumed one, with workers, measurements."""

from collections import Counter
from pathlib import Path

import pytest
from twins import TWINS

from cloister.audit.bounds import Claim
from cloister.audit.doors import EchoJournal, HeardJournal, Losses, WatchedDoor, Worlds
from cloister.audit.tables import PERSON, ROW, TABLES, neighbours
from cloister.audit.trials import LEVEL, Arena, Attack, Trial, planned_events, shown
from cloister.privacy.discovery import discover
from cloister.privacy.events import Relation, event_from_json
from cloister.tasks.data.session import Session
from cloister.tasks.data.sources import ColumnsSource
from cloister.tasks.data.workers import workers_of
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import open_ledger
from cloister.tasks.requests.measurement import domain_context, domain_plan, domain_request
from cloister.tasks.requests.release_request import ReleaseRequest

TRIALS = 200


def worlds(trials=TRIALS):
    return [index % 2 == 1 for index in range(trials)]


@pytest.mark.audit
@pytest.mark.parametrize("relation", list(Relation))
def test_a_series_shows_no_more_than_both_plans_claim(relation, tmp_path):
    arena = Arena(Attack("mixture", relation=relation, epsilon="2", series=2), tmp_path)
    seen = shown(arena.claim, list(arena.trials(worlds(TRIALS // 4))))
    assert arena.claim.mu > 1.3 * Arena(Attack("mixture", epsilon="2"), tmp_path / "one").claim.mu
    assert (seen.p_value >= LEVEL, seen.unplanned) == (True, 0)


class Killed(Exception):
    """The process dies after an answer was written and before anybody has it."""


class Resumed(Arena):
    """Each release is killed after its first, or second, answer, and done again by its journal."""

    def release(self, source, rows, number, seen, previous):
        answer = HeardJournal.answer

        def dying(journal, request, draw):
            given = answer(journal, request, draw)
            if journal.position > 1 + seen.with_unit:
                raise Killed
            return given

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HeardJournal, "answer", dying)
            with pytest.raises(Killed):
                super().release(source, rows, number, seen, previous)
        seen.losses.__init__()  # a killed process takes with it what it saw
        return super().release(source, rows, number, seen, previous)


@pytest.mark.audit
@pytest.mark.parametrize("method", ["independent", "dpview+"])
def test_a_resumed_release_shows_no_more(method, tmp_path):
    arena = Resumed(Attack(method, epsilon="4"), tmp_path)
    seen = shown(arena.claim, list(arena.trials(worlds())))
    assert (seen.p_value >= LEVEL, seen.unplanned) == (True, 0)
    assert seen.mu > arena.claim.mu / 2


@pytest.fixture(scope="module")
def workers():
    """One worker for all trials."""
    with workers_of("local:1") as started:
        yield started


@pytest.mark.audit
@pytest.mark.parametrize(
    ("method", "unit", "kind", "trials"),
    [
        ("independent", ROW, "rare", 50),
        ("dpview+", PERSON, "beyond the bound", 50),
        ("relational", TABLES, "beyond the bound", 20),
    ],
)
def test_rows_with_workers_show_no_more(method, unit, kind, trials, workers, tmp_path):
    arena = Arena(Attack(method, unit, epsilon="4", kind=kind), tmp_path)
    arena.workers = workers
    seen = shown(arena.claim, list(arena.trials(worlds(trials))))
    assert (seen.p_value >= LEVEL, seen.unplanned) == (True, 0)


@pytest.mark.audit
def test_a_flaw_in_rows_with_workers_is_found(workers, tmp_path, monkeypatch):
    """Counts get half of the noise that their event names."""
    twin = TWINS["noise halved"]
    twin.patch(monkeypatch)
    arena = Arena(twin.attack("independent"), tmp_path)
    arena.workers = workers
    assert shown(arena.claim, list(arena.trials(worlds(twin.trials)))).p_value < LEVEL


class WatchedColumns(WatchedDoor):
    """The doors to raw columns, of which the fitted one names the texts that it released."""

    def words(self, *released):
        return self.door.words(*released)


def measured_trials(folder: Path, relation: Relation):
    """Measurements of all domains of either table, on the path of `cloister spec measure`."""
    tables = neighbours(ROW, relation, "rare", 160)
    derived = {
        name: {**keys, "provenance": "data-derived"}
        for name, keys in tables.spec["attributes"].items()
        if keys["type"] != "ordinal"
    }
    spec = {**tables.spec, "attributes": {**tables.spec["attributes"], **derived}}
    paths = type(tables)(spec, tables.frames).write(folder)
    home = Home.current({"CLOISTER_HOME": str(folder / "home")})
    requests = [
        domain_request(ReleaseRequest(spec=path, epsilon="4", delta="1e-6", out="o"))
        for path in paths
    ]
    plan, task = domain_plan(requests[0]), domain_context(requests[0]).task
    planned, source = planned_events(plan.event), ColumnsSource()
    with Session(source) as session:
        rows = [
            session.open(f"r-{number}", request, home).rows.value
            for number, request in enumerate(requests)
        ]
        found = []
        for number, with_unit in enumerate(worlds()):
            losses = Losses()
            with HeardJournal.open(folder / str(number), {"run": "audit"}) as journal:
                doors = [
                    source.door(rows[index], task, plan.event, one, home)
                    for index, one in (
                        (int(with_unit), journal),
                        (int(not with_unit), EchoJournal(journal)),
                    )
                ]
                watched = WatchedColumns(*doors, Worlds(with_unit, losses))
                discover(watched, plan, lambda *_: None)
            found.append(Trial.of(with_unit, losses, sum((losses.events - planned).values())))
    return Claim.of(plan.event, 1e-6, relation), found


@pytest.mark.audit
@pytest.mark.parametrize("relation", list(Relation))
def test_a_measurement_of_domains_shows_no_more(relation, tmp_path):
    claim, trials = measured_trials(tmp_path, relation)
    seen = shown(claim, trials)
    assert (seen.p_value >= LEVEL, seen.unplanned, seen.unread) == (True, 0, 0)
    assert seen.mu_low > 0


@pytest.mark.audit
def test_the_ledger_charged_what_journals_answered(place, prefect_server, monkeypatch, tmp_path):
    """Two releases, the second by the numbers of the first: every event answered was charged."""
    from cloister.flows.cli.app import run
    from cloister.privacy.door.table import PrivateRows

    answered: list[Counter] = []
    answer = PrivateRows.answer

    def heard(door, query, mechanism, label):
        answered[-1][mechanism.event(query.sensitivity(door.neighbours))] += 1
        return answer(door, query, mechanism, label)

    monkeypatch.setattr(PrivateRows, "answer", heard)
    for more in ([], ["--prior", "latest"]):
        answered.append(Counter())
        words = ["release", str(place.spec), "--method", "mixture", "--evaluate", "none", *more]
        assert run(words) == 0
    ledger = open_ledger(place.home)
    charged = [
        planned_events(event_from_json(release.request.events))
        for release in sorted(ledger.releases(), key=lambda release: release.reserved_at)
    ]
    assert charged == answered
