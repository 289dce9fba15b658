"""Accounts on either database: one budget for one data set, whoever names it, and for life."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ledger_requests import ask
from sqlalchemy import create_engine, make_url
from two_databases import on, on_both

from cloister.errors import BudgetExceeded, InputError, StorageError, VerificationError
from cloister.privacy.ledger import Account, BudgetGrant, Ledger, Opening
from cloister.privacy.ledger.books import GRANTED
from cloister.privacy.ledger.guards import TABLE
from cloister.tasks.home.home import Home
from cloister.tasks.ledger import access
from cloister.tasks.ledger.budgets import budget_history, grant_budget, open_account
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve


def opening(
    name: str = "adult",
    *places: str,
    unit: str = "row",
    relation: str = "add_remove",
    epsilon: object = 3,
) -> Opening:
    budget = BudgetGrant.of(name, unit, epsilon, "1e-4", "year")  # type: ignore[arg-type]
    return Opening(Account(name, unit, relation, places), budget, "first release")


def test_the_first_release_opens_the_account_and_its_budget(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(), "flow", opening("adult", "/data/adult.csv"))
    ledger.reserve(ask(), "flow", opening("adult", "/data/adult.csv", epsilon=9))
    assert [*ledger.books().accounts.values()] == [
        Account("adult", "row", "add_remove", ("/data/adult.csv",))
    ]
    assert [granted.budget.epsilon for granted in ledger.books().grants["adult", "row"]] == [3]
    assert ledger.budget("adult", "row").spent is not None
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("registered", "asked"),
    [
        ("/data/adult.csv", "/data/adult.csv"),
        ("/data/visits-*.csv", "/data/visits-2026-11.csv"),
        ("/data/visits-2026-11.csv", "/data/visits-*.csv"),
        ("/data/[1].csv", "/data/[1].csv"),
        ("/data/2026-*.csv", "/data/*-01.csv"),
        ("/data/visits*.csv", "/data/vis*-01*.csv"),
        ("/data/visits", "/data/visits/*.parquet"),
        ("/data/visits/1.parquet", "/data/visits"),
    ],
)
def test_data_of_another_account_is_refused_and_its_account_is_named(place, registered, asked):
    ledger = Ledger.open(place)
    ledger.open_account(Account("visits", "row", "add_remove", (registered,)), "officer", "why")
    before = ledger.entries()
    with pytest.raises(InputError, match=r"account 'visits'.*account: visits.*Nothing was charged"):
        ledger.reserve(ask("second"), "flow", opening("second", asked))
    assert ledger.entries() == before  # neither account nor budget nor charge
    ledger.reserve(ask("third"), "flow", opening("third", "/data/other.csv"))


@pytest.mark.parametrize(
    ("registered", "asked"),
    [
        ("/data/2026-*.csv", "/data/2025-*.csv"),
        ("/data/*-01.csv", "/data/*-02.csv"),
        ("/data/visits", "/data/visits-2.csv"),
        ("/data/visits.csv", "/data/*.parquet"),
    ],
)
def test_data_beside_that_of_another_account_is_not_its(place, registered, asked) -> None:
    ledger = Ledger.open(place)
    ledger.open_account(Account("visits", "row", "add_remove", (registered,)), "officer", "why")
    ledger.reserve(ask("second"), "flow", opening("second", asked))
    assert ledger.books().accounts["second"].places == (asked,)


def test_overlapping_places_of_an_earlier_version_stay(place: str) -> None:
    """Earlier versions compared no pattern with a pattern: their ledgers can be read and used."""
    ledger, second = Ledger.open(place), opening("second", "/data/*-01.csv")
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(Account, "overlaps", Account.holds)
        ledger.reserve(ask(), "flow", opening("adult", "/data/2026-*.csv"))
        ledger.reserve(ask("second"), "flow", second)
    assert ledger.verify() == []
    ledger.reserve(ask("second", spend_id="again"), "flow", second)
    with pytest.raises(InputError, match="account: adult"):
        ledger.reserve(ask("second"), "flow", opening("second", "/data/*-01*.csv"))


def test_new_places_belong_to_the_account_that_used_them_first(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(), "flow", opening("adult", "/data/1.csv"))
    ledger.reserve(ask(), "flow", opening("adult", "/data/2.csv"))
    with pytest.raises(InputError, match="account 'adult'"):
        ledger.reserve(ask("other"), "flow", opening("other", "/data/2.csv"))
    assert ledger.books().accounts["adult"].places == ("/data/1.csv", "/data/2.csv")
    assert ledger.verify() == []


def test_a_link_to_data_of_another_account_is_that_data(home: Home, tmp_path: Path) -> None:
    data, link = tmp_path / "data.csv", tmp_path / "link.csv"
    data.write_text("a")
    os.link(data, link)
    registered = ("row", "add_remove", [str(data)], "officer", "why")
    open_account(home, "visits", *registered)
    before = access.open_ledger(home).entries()
    with pytest.raises(InputError, match="account: visits"):
        open_account(home, "second", "row", "add_remove", [str(link)], "officer", "why")
    assert access.open_ledger(home).entries() == before
    open_account(home, "visits", "row", "add_remove", [str(link)], "officer", "why")


def test_a_table_of_a_database_has_one_budget_however_it_is_named(
    home: Home, tmp_path: Path, postgres_place: str, write_world: Callable[..., Path]
) -> None:
    spec = write_world(tmp_path, "world")
    text, table = spec.read_text(), pd.read_csv(tmp_path / "world.csv")
    url = make_url(postgres_place)
    for database in (f"sqlite:///{tmp_path}/shop.db", url):
        table.to_sql("rows", create_engine(database), index=False)
    os.link(tmp_path / "shop.db", tmp_path / "link.db")
    named = url.query["options"].partition("=")[2]
    unseen = url.set(query={}).render_as_string(), f"{named}.rows"
    elsewhere = url.set(host=None, query={**url.query, "host": url.host})
    shop, link = (f"sqlite:///{tmp_path}/{name}.db" for name in ("shop", "link"))
    same = (
        [(shop, "rows"), (shop, "ROWS"), (shop, "main.Rows"), (link, "Rows")],
        [(url.render_as_string(), "rows"), unseen, (elsewhere.render_as_string(), "rows")],
    )

    def charge(number: int, place: tuple[str, str]) -> None:
        path, source = tmp_path / f"{number}.yaml", f"url: '{place[0]}', table: {place[1]}"
        declared = text.replace(f"path: {tmp_path}/world.csv", source)
        path.write_text(declared.replace("name: world", f"name: n{number}"))
        request, ledger = resolve(ReleaseRequest(spec=path)), access.open_ledger(home)
        context = public_context_of(request)
        declared = access.opening_of(request, context, home)
        opened = access.with_all_places(declared, ledger.books(), request, context)
        ledger.reserve(ask(f"n{number}"), "flow", opened)

    for number, (first, *others) in enumerate(same):
        charge(number, first)
        for other in others:
            with pytest.raises(InputError, match=f"account: n{number} "):
                charge(number + 100, other)
    assert access.open_ledger(home).verify() == []


def test_places_of_an_earlier_version_that_share_files_stay(home: Home, tmp_path: Path) -> None:
    (tmp_path / "2026-01.csv").write_text("a")
    ledger, second = access.open_ledger(home), opening("second", f"{tmp_path}/*-01.csv")
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(Account, "overlaps", Account.holds)
        ledger.reserve(ask("first"), "flow", opening("first", f"{tmp_path}/2026-*.csv"))
        ledger.reserve(ask("second"), "flow", second)
    assert access.all_places(ledger.books(), second.account) == second.account


@pytest.mark.parametrize("asked", [{"unit": "key:person"}, {"relation": "replace_one"}])
def test_an_account_has_one_unit_and_one_relation_for_life(place: str, asked: dict) -> None:
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.reserve(ask(), "flow", opening())
    later = replace(ledger, clock=on("2027-06-01"))
    with pytest.raises(InputError, match="for life"):
        later.reserve(ask(**asked), "flow", opening(**asked))
    assert later.budget("adult", "row").lifetime == 1


def test_an_account_of_earlier_releases_takes_their_unit(place: str) -> None:
    """Ledgers of versions before 0.3 have budgets by dataset and unit, and no accounts."""
    ledger = Ledger.open(place)
    ledger.grant("adult", "row", 3, "1e-4", "year", "officer", "why")
    ledger.reserve(ask(), "flow")
    with pytest.raises(InputError, match="'row' under 'add_remove'"):
        ledger.reserve(ask(unit="key:person"), "flow", opening(unit="key:person"))
    ledger.reserve(ask(), "flow", opening(epsilon=50))
    assert ledger.budget("adult", "row").spent is not None
    assert ledger.budget("adult", "row").budget.epsilon == 3
    assert ledger.verify() == []


@on_both
def test_of_eight_first_releases_one_writes_the_grant(place, child, ending) -> None:
    Ledger.open(place)

    def first() -> int:
        Ledger.open(place).reserve(ask(epsilon="1/8"), "flow", opening("adult", "/data/a.csv"))
        return 0

    assert [ending(pid) for pid in [child(first) for _ in range(8)]] == [0] * 8
    ledger = Ledger.open(place)
    assert len([entry for entry in ledger.entries() if entry.kind == GRANTED]) == 1
    assert len(ledger.releases("adult")) == 8
    assert ledger.verify() == []


def test_a_changed_period_frees_nothing_that_was_spent(place: str) -> None:
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.reserve(ask(epsilon=10, delta="1e-5"), "flow", opening(epsilon=10))
    march = replace(ledger, clock=on("2026-03-02"))
    now = march.grant("adult", "row", 10, "1e-4", "month", "officer", "monthly from now on")
    assert (now.window, now.left, [each.period for each in now.also_binding]) == (
        "2026-03",
        0,
        ["year"],
    )
    for day in ("2026-03-03", "2026-04-01", "2026-12-31"):
        with pytest.raises(BudgetExceeded, match="window 2026\\)"):
            replace(ledger, clock=on(day)).reserve(ask(), "flow", opening())
    later = replace(ledger, clock=on("2027-01-01"))
    later.reserve(ask(epsilon=10), "flow", opening())
    assert later.budget("adult", "row").also_binding == ()
    assert later.verify() == []


def test_a_budget_for_ever_holds_beside_later_ones(place: str) -> None:
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.open_account(Account("adult", "row", "add_remove"), "officer", "why")
    ledger.grant("adult", "row", 1, "1e-4", "ever", "officer", "why")
    ledger.reserve(ask(), "flow", opening())
    ledger.grant("adult", "row", 10, "1e-4", "month", "officer", "why")
    with pytest.raises(BudgetExceeded, match="window ever"):
        replace(ledger, clock=on("2031-01-01")).reserve(ask(), "flow", opening())
    ledger.grant("adult", "row", 5, "1e-4", "ever", "officer", "why")
    ledger.reserve(ask(), "flow", opening())


def test_a_month_ends_where_its_budget_was_replaced_by_one_for_ever(place: str) -> None:
    ledger = replace(Ledger.open(place), clock=on("2026-01-05"))
    ledger.open_account(Account("adult", "row", "add_remove"), "officer", "why")
    ledger.grant("adult", "row", 1, "1e-4", "month", "officer", "why")
    ledger.grant("adult", "row", 5, "1e-4", "ever", "officer", "why")
    assert ledger.budget("adult", "row").left == 1
    later = replace(ledger, clock=on("2026-02-01"))
    assert (later.budget("adult", "row").left, later.budget("adult", "row").also_binding) == (5, ())


def test_delta_is_named_where_delta_is_used_up(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(delta="9e-5"), "flow", opening())
    with pytest.raises(BudgetExceeded, match=r"Of delta, .* 1e-05 is left"):
        ledger.reserve(ask(delta="2e-5"), "flow", opening())


DROPPED = {
    "sqlite": f"DROP TRIGGER {TABLE}_delete",
    "postgresql": f"DROP TRIGGER {TABLE}_delete ON {TABLE}",
}


@on_both
def test_nothing_is_charged_to_a_ledger_whose_guards_were_dropped(place: str) -> None:
    ledger = Ledger.open(place)
    ledger.reserve(ask(), "flow", opening())
    with ledger.store.engine.begin() as connection:
        connection.exec_driver_sql(DROPPED[ledger.store.dialect])
        connection.exec_driver_sql(f"DELETE FROM {TABLE} WHERE seq = 3")
    with pytest.raises(VerificationError, match="changed by other means"):
        ledger.reserve(ask(), "flow", opening())


@pytest.fixture
def home(place: str, tmp_path: Path) -> Home:
    """A home whose ledger is on either database, with one charged release."""
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home"), "CLOISTER_LEDGER": place})
    release = access.open_ledger(home).reserve(ask(), "flow", opening()).release
    home.release(release.id).mkdir(parents=True)
    return home


def emptied(home: Home) -> None:
    """The ledger is deleted, as someone would who wants the budget back."""
    if "sqlite" in home.ledger:
        for path in Path(home.ledger.removeprefix("sqlite:///")).parent.iterdir():
            path.unlink()
    else:
        with create_engine(home.ledger.replace("postgresql:", "postgresql+psycopg:")).begin() as c:
            c.exec_driver_sql(f"DROP TABLE {TABLE}")
            c.exec_driver_sql(f"DROP FUNCTION {TABLE}_refuse, {TABLE}_follow")
            c.exec_driver_sql("DROP TABLE cloister_leases")
    home.end.unlink()


@on_both
def test_a_home_whose_ledger_is_gone_charges_nothing_until_it_is_restored(home, tmp_path) -> None:
    export = tmp_path / "ledger.jsonl"
    access.export_ledger(home, export)
    entries = access.open_ledger(home).entries()
    emptied(home)
    with pytest.raises(StorageError, match="cloister ledger restore"):
        access.open_ledger(home).reserve(ask(), "flow", opening())
    assert access.restore_ledger(home, export) == entries[-1].anchor
    assert access.open_ledger(home).entries() == entries
    assert access.open_ledger(home).verify() == []
    with pytest.raises(StorageError, match="holds entries"):
        access.restore_ledger(home, export)


def test_an_export_that_lacks_what_this_home_wrote_is_not_restored(home, tmp_path) -> None:
    export, end = tmp_path / "ledger.jsonl", home.end.read_text()
    access.export_ledger(home, export)
    access.open_ledger(home).reserve(ask(), "flow", opening())
    later = home.end.read_text()
    assert later != end
    emptied(home)
    home.end.write_text(later)
    with pytest.raises(VerificationError, match="is missing"):
        access.restore_ledger(home, export)


def test_nothing_is_added_to_a_ledger_whose_end_was_cut_off(home: Home) -> None:
    home.end.write_text(f"9:{'ab' * 32}\n")
    with pytest.raises(VerificationError, match="does not hold entry 9"):
        access.open_ledger(home).reserve(ask(), "flow", opening())


def test_an_unusual_grant_is_asked_about_and_each_is_in_the_history(home: Home) -> None:
    def grant(epsilon: object, name: str = "adult", confirmed: bool = False) -> None:
        budget = BudgetGrant.of(name, "row", epsilon, "1e-4", "year")  # type: ignore[arg-type]
        grant_budget(home, budget, "officer", "policy 7", confirmed=confirmed)

    access.open_ledger(home).spend(
        access.open_ledger(home).releases()[0].id, "flow", "journal", "data"
    )
    with pytest.raises(InputError, match="did you mean 'adult'"):
        grant(5, "adlut")
    with pytest.raises(InputError, match="more than 10 times the 3"):
        grant(1000)
    with pytest.raises(InputError, match="below the 1"):
        grant("1/2")
    grant("1/2", confirmed=True)
    first, second = budget_history(home, "adult")
    assert (first["from"], first["by"]) == ("none", "flow")
    assert second["from"] == first["to"] and "epsilon 0.5" in second["to"]
    assert (second["by"], second["reason"]) == ("officer", "policy 7")
