"""From the schema of a database to a spec, and from its rows to synthetic ones in another."""

import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import sqlalchemy as sa
import yaml
from postgres_schemas import schema

from cloister.flows.cli.app import run
from cloister.schema.sources.databases import connect
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.home.home import Home
from cloister.tasks.release.verify import verify_records

DDL = """
CREATE TABLE customers (id integer PRIMARY KEY, segment varchar(9) NOT NULL, since date);
CREATE TABLE orders (
  number integer PRIMARY KEY,
  customer integer NOT NULL REFERENCES customers (id),
  placed date NOT NULL,
  price numeric(8, 2) NOT NULL,
  paid boolean,
  note bytea
);
"""
EARLY = """
SELECT count(*) FROM orders o JOIN customers c ON o.customer = c.id WHERE o.placed < c.since
"""
VALID = (
    "SELECT convalidated FROM pg_constraint WHERE conrelid = 'orders'::regclass AND contype = 'f'"
)
MIXED = "SELECT customer FROM orders GROUP BY customer HAVING count(DISTINCT paid) > 1"
SEGMENTS = ("home", "office", "school")
SECRET = 48_151_623
"""A number of the data that no draft may hold."""

PASSWORD = "hush/4711@home"
"""What a server that trusts this machine does not look at, and no file may hold."""

FILLED = {
    'segment: {type: categorical, values: ["?"]': "segment: {type: categorical, values: "
    "[home, office, school]",
    'since: {type: date, min: "2000-01-01", max: "2000-01-01"': "since: {type: date, "
    "min: 2000-01-01, max: 2009-12-31",
    'placed: {type: date, min: "2000-01-01", max: "2000-01-01"': "placed: {type: date, "
    "min: 2000-01-01, max: 2019-12-31",
    "price: {type: float, min: 0.0, max: 0.0": "price: {type: float, min: 0, max: 999.99",
    "    rows: {measured: true} # write {public: NUMBER}": "    rows: {public: 900}",
    "  rows: {measured: true} # write {public: NUMBER}": "  rows: {public: 400}",
    "max_rows: 10": "max_rows: 4",
    "    attributes:\n      number": "    constraints: [{name: one way, fd: customer -> paid}]\n"
    "    attributes:\n      number",
    "tables:\n": 'constraints: [{name: after, deny: "orders.placed < customers.since"}]\n'
    "tables:\n",
    "data-derived": "price list",
    "delta: 1e-6": "delta: 1e-5",
    "delta: 1e-7": "delta: 0",
    "epsilon: 1, ": "epsilon: 6, ",
}  # fmt: skip


def _fill(url: str) -> None:
    rng = np.random.default_rng(3)
    keys = SECRET + np.arange(400)
    statements = DDL.replace("bytea", "blob") if url.startswith("sqlite") else DDL
    with connect(url, "shop", made=True) as connection:
        for statement in filter(str.strip, statements.split(";")):
            connection.exec_driver_sql(statement)
        customers = [
            {"id": int(key), "segment": SEGMENTS[rng.integers(3)], "since": day}
            for key, day in zip(keys, _days(rng, 400, 3650), strict=True)
        ]
        orders = [
            {
                "number": SECRET + number,
                "customer": int(rng.choice(keys)),
                "placed": day,
                "price": float(rng.integers(0, 99_999)) / 100,
                "paid": bool(rng.integers(2)),
            }
            for number, day in enumerate(_days(rng, 900, 7300))
        ]
        for table, rows in (("customers", customers), ("orders", orders)):
            names = ", ".join(rows[0])
            places = ", ".join(f":{name}" for name in rows[0])
            connection.execute(sa.text(f"INSERT INTO {table} ({names}) VALUES ({places})"), rows)  # noqa: S608
        connection.commit()


def _days(rng: np.random.Generator, number: int, most: int) -> list[str]:
    days = np.datetime64("2000-01-01") + rng.integers(0, most, number)
    return [str(day) for day in days]


@pytest.fixture
def shop(request, folder: Path, prefect_server, monkeypatch):
    """The URLs of a database with rows and of an empty one, in an environment as in production."""
    if request.param == "sqlite":
        _fill(f"sqlite:///{folder}/shop.db")
        yield f"sqlite:///{folder}/shop.db", f"sqlite:///{folder}/synthetic.db"
        return
    with schema() as source, schema() as target:
        monkeypatch.setenv("SYNTHETIC", target)
        reader = sa.make_url(source)
        monkeypatch.setenv("SHOP_PASSWORD", reader.password or PASSWORD)
        shown = reader.set(password="PASSWORD").render_as_string(hide_password=False)
        named = shown.replace(":PASSWORD@", ":${SHOP_PASSWORD}@")
        _fill(named)
        yield named, "${SYNTHETIC}"


def _filled(draft: str) -> str:
    for old, new in FILLED.items():
        assert old in draft, (old, draft)
        draft = draft.replace(old, new)
    return draft


@pytest.mark.parametrize("shop", ["postgresql"], indirect=True)
def test_a_database_is_drafted_released_and_loaded(shop, tmp_path: Path, capsys) -> None:
    source, target = shop
    assert run(["spec", "draft", source, "--out", "draft.yaml"]) == 0
    text = (tmp_path / "draft.yaml").read_text(encoding="utf-8")
    assert "48151" not in text
    drafted = load_spec(tmp_path / "draft.yaml")
    assert drafted.tables["orders"].references["customer"].table == "customers"
    assert drafted.tables["orders"].ignore == ("note",)
    assert drafted.tables["orders"].attributes["paid"].nullable
    assert not drafted.tables["orders"].attributes["price"].nullable
    assert run(["release", "draft.yaml", "--out", target]) == 2
    assert "data-derived" in capsys.readouterr().err
    assert not (tmp_path / "home" / "ledger.db").exists()

    (tmp_path / "shop.yaml").write_text(_filled(text), encoding="utf-8")
    words = ["release", "shop.yaml", "--out", target, "--evaluate", "quick", "--json"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert said["files"]["database"] == target
    with connect(target, "synthetic") as connection:
        joined = connection.execute(
            sa.text("SELECT o.number, c.id FROM orders o JOIN customers c ON o.customer = c.id")
        ).all()
        counts = connection.execute(sa.text("SELECT count(*) FROM orders")).scalar()
        (key,) = sa.inspect(connection).get_foreign_keys("orders")
        assert connection.execute(sa.text(VALID)).all() == [(True,)]
        assert connection.execute(sa.text("SELECT count(*) FROM customers")).scalar() == 400
        early = connection.execute(sa.text(EARLY)).scalar()
        mixed = connection.execute(sa.text(MIXED)).all()
    assert len(joined) == counts > 0
    assert (early, mixed) == (0, [])
    (folder,) = (tmp_path / "home" / "releases").iterdir()
    certificate = yaml.safe_load((folder / "public" / "certificate.yaml").read_text("utf-8"))
    kept = {rule["name"]: rule["violations"] for rule in certificate["constraints"]}
    assert kept == {"orders: one way": 0, "after": 0, "orders: customer": 0}
    measured = {rule["name"]: rule for rule in said["internal"]["violations"]}
    assert measured["after"]["real"] > 0
    assert measured["after"]["synthetic"] == 0
    assert counts > 600
    assert (key["constrained_columns"], key["referred_table"]) == (["customer"], "customers")
    assert max(max(number, own) for number, own in joined) < SECRET
    assert verify_records(Home.current(), None)[1] == []

    assert run(["release", "shop.yaml", "--out", target]) == 2
    assert "not of this release" in capsys.readouterr().err
    near = (tmp_path / "shop.yaml").read_text("utf-8").replace("@127.0.0.1", "@localhost")
    (tmp_path / "near.yaml").write_text(f"account: another\n{near}", "utf-8")
    assert run(["release", "near.yaml", "--out", "near"]) == 2
    assert "is data of account 'test', at least in part" in capsys.readouterr().err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"SHOP_PASSWORD" in path.read_bytes() for path in written)
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert [
        path for path in written if quote(PASSWORD, safe="").encode() in path.read_bytes()
    ] == []


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("postgresql://officer:hush@127.0.0.1:1/x", "holds a password"),
        ("postgresql://officer@127.0.0.1:1/x", "cannot be written to the database"),
        ("mysql://officer@127.0.0.1:1/x", "cannot be written to the database"),
        ("sqlite:////no/such/folder/x.db", "cannot be written to the database"),
        ("TAKEN", "not of this release"),
        ("TAKEN --replace", "no release of this dataset made"),
        ("new-folder --replace", "--replace is of tables in a database"),
    ],
)
def test_a_place_that_cannot_be_loaded_is_refused_before_a_charge(
    shop, tmp_path: Path, capsys, out: str, message: str
) -> None:
    run(["spec", "draft", shop[0], "--out", "draft.yaml"])
    text = (tmp_path / "draft.yaml").read_text(encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(_filled(text), encoding="utf-8")
    assert run(["release", "shop.yaml", "--out", *out.replace("TAKEN", shop[0]).split()]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert "hush" not in said.err + said.out
    assert not (tmp_path / "home" / "ledger.db").exists()


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_source_that_is_not_there_or_has_a_password_is_refused_before_a_charge(
    shop, tmp_path: Path, capsys
) -> None:
    run(["spec", "draft", shop[0], "--out", "draft.yaml"])
    text = _filled((tmp_path / "draft.yaml").read_text(encoding="utf-8"))
    spec = tmp_path / "shop.yaml"
    for old, new, message in (
        ("table: orders}", "table: ordres}", "NoSuchTableError"),
        ("shop.db", "shopp.db", "does not exist"),
        (shop[0], "postgresql://a:hush@127.0.0.1:1/x", "holds a password"),
    ):
        spec.write_text(text.replace(old, new), encoding="utf-8")
        assert run(["release", "shop.yaml"]) == 2
        said = capsys.readouterr()
        assert message in said.err
        assert "hush" not in said.err + said.out
        assert not (tmp_path / "home" / "ledger.db").exists()


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_one_table_is_drafted_alone_and_a_password_nowhere(shop, tmp_path: Path, capsys) -> None:
    assert run(["spec", "draft", shop[0], "--table", "customers"]) == 0
    text = capsys.readouterr().out
    assert list(yaml.safe_load(text)["attributes"]) == ["id", "segment", "since"]
    assert run(["spec", "draft", shop[0], "--table", "clients"]) == 2
    assert "no table 'clients'" in capsys.readouterr().err
    assert run(["spec", "draft", "postgresql://a:hush@127.0.0.1:1/x"]) == 2
    said = capsys.readouterr()
    assert "holds a password" in said.err
    assert "hush" not in said.err
