"""Where data lies, as a text that is the same however a spec writes it."""

import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from declared_table import TWO, content, declared
from postgres_schemas import schema

from cloister.errors import SpecError, StorageError
from cloister.privacy.ledger.accounts import Account
from cloister.schema.sources.databases import connect, stored_identities, table_identities
from cloister.schema.sources.reading import places_of
from cloister.schema.sources.stored_files import object_identity, same_places
from cloister.schema.spec import Spec


def test_a_file_is_the_same_by_any_path_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = tmp_path / "real" / "table.csv"
    data.parent.mkdir()
    data.write_text("a,b\n1,2\n")
    (tmp_path / "link").symlink_to(data.parent)
    monkeypatch.chdir(tmp_path)
    ways = ("real/table.csv", "./real/../link/table.csv", str(tmp_path / "link" / "table.csv"))
    identities = {places_of(declared(tmp_path, TWO, {"path": way})) for way in ways}
    assert identities == {(str(data),)}
    other = declared(tmp_path, TWO, {"path": "other.csv"})
    assert places_of(other, Path("real/table.csv")) == (str(data),)


def test_a_table_is_the_same_for_each_user_driver_and_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PASSWORD", "secret:@/")
    monkeypatch.setenv("WHOLE", "postgresql://x:y@db/shop")
    database = "postgresql://db:5432/shop"
    for url in (
        "postgresql://reader@db/shop",
        "postgresql://other:${PASSWORD}@db:5432/shop",
        "postgresql+psycopg://db/shop?connect_timeout=5",
        "${WHOLE}",
    ):
        names = f"{database} table visits", f"{database} table public.visits"
        assert table_identities(url, "visits") == names
    for place, table in (
        ("/shop", "visits"),
        ("localhost/shop", "public.visits"),
        ("reader@127.0.0.1:5432/shop", "visits"),
        ("[::1]/shop", "public.visits"),
        ("LOCALHOST/shop", "visits"),
    ):
        here = "postgresql://localhost:5432/shop table public.visits"
        assert table_identities(f"postgresql://{place}", table)[-1] == here


@pytest.mark.parametrize("url", ["mysql://db/shop", "mssql+pyodbc://dsn", "duckdb:///shop.db"])
def test_a_table_of_a_database_that_reads_names_otherwise_is_no_source(url: str):
    """`Rows` and `rows`, or a port left out, would be two accounts of one table there."""
    with pytest.raises(StorageError, match="SQLite or PostgreSQL, or from files"):
        table_identities(url, "rows")


def test_a_table_of_another_schema_or_machine_is_another(tmp_path: Path):
    places = [
        table_identities(url, table)
        for url, table in (
            ("postgresql://localhost/shop", "visits"),
            ("postgresql://db/shop", "visits"),
            ("postgresql://localhost/shop", "old.visits"),
            ("postgresql://localhost:5433/shop", "visits"),
            (f"sqlite:///{tmp_path}/shop.db", "visits"),
            (f"sqlite:///{tmp_path}/shop.db", "visits2"),
        )
    ]
    near, other = (table_identities(f"postgresql://{host}/shop", "a") for host in ("DB", "db"))
    assert near[-1] == other[-1]
    assert len({place for each in places for place in each}) == sum(map(len, places))
    assert places[-1][-1].endswith("shop.db table main.visits2")


def test_an_object_is_the_same_however_its_letters_and_store_are_written():
    for url in ("s3://b/k%20%2B/%6b", "s3://b/k +/k", "s3://%62/k%20+/k/"):
        assert object_identity(url) == "s3://b/k%20%2B/k"
    for url in ("gs://b/k*", "gcs://b/k*", "gs://anonymous@b/k*", "gs://B/k*"):
        assert object_identity(url) == "gs://b/k*"
    for scheme in ("abfs", "abfss"):
        url = f"{scheme}://c@shop.dfs.core.windows.net/k/"
        assert object_identity(url) == "abfs://c@shop.dfs.core.windows.net/k"
    assert object_identity("hdfs://node:8020/k") == object_identity("hdfs://node/k/")


@pytest.mark.parametrize(
    "url",
    [
        *("s3://ours:hush@b/k", "s3://hush@b/k", "s3://b:80/k", "s3://b/k?secret_key=hush"),
        *(
            "s3://b/k#hush",
            "s3://b/./k",
            "s3://b/x/../k",
            "s3://b/%2e/k",
            "s3://b//k",
            "s3://b/k//",
        ),
        *("abfs://shop@c/k", "abfs://shop:hush@c/k", "abfs://shop.blob.core.windows.net/c/k"),
        *("hdfs://hush@node/k", "hdfs://node:9000/k", "file:///k", "mock://b/k", "s3://[b/k"),
    ],
)
def test_an_object_is_named_in_one_way_and_without_keys(tmp_path: Path, url: str):
    """Servers, Arrow and curl read several ways of writing as one: each would be a new account."""
    with pytest.raises(StorageError, match=r"is no object as s3://BUCKET/KEY") as caught:
        object_identity(url)
    with pytest.raises(SpecError, match=r"source\.path") as refused:
        declared(tmp_path, TWO, {"path": url})
    assert "hush" not in str(caught.value) + str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://reader:hush@db/shop", "postgresql://db/shop?user=a&password=hush"),
        *("mssql+pyodbc:///?odbc_connect=UID%3Da%3BPWD%3Dhush", "mssql+pyodbc://dsn?pwd=hush"),
        "snowflake://reader@shop/db?access_token=hush",
    ],
)
def test_a_database_is_named_without_keys(tmp_path: Path, url: str):
    with pytest.raises(SpecError, match="holds a password") as refused:
        declared(tmp_path, TWO, {"path": None, "url": url, "table": "rows"})
    assert "hush" not in str(refused.value)


def test_a_spec_may_name_the_account_and_keeps_its_digest_without(tmp_path: Path):
    plain = declared(tmp_path, TWO)
    assert (plain.account_name, "account" in plain.to_json()) == ("table", False)
    spec = Spec.declared_in(tmp_path, content(TWO) | {"account": "register"})
    assert (spec.name, spec.account_name) == ("table", "register")


def test_several_files_are_named_by_a_pattern_and_links_by_what_they_lead_to(tmp_path: Path):
    folder, elsewhere = tmp_path / "real", tmp_path / "elsewhere.parquet"
    folder.mkdir()
    (folder / "1.parquet").touch()
    (tmp_path / "link").symlink_to(folder)
    for source in (folder, tmp_path / "link", f"{folder}/", f"{tmp_path}/link/*.parquet"):
        spec = declared(tmp_path, TWO, {"path": str(source)})
        assert places_of(spec) == (f"{folder}/*.parquet",)
    elsewhere.touch()
    (folder / "2.parquet").symlink_to(elsewhere)
    assert places_of(spec) == (f"{folder}/*.parquet", str(elsewhere))
    assert Account("x", "row", "add_remove", places_of(spec)).holds(f"{folder}/1.parquet")


def test_a_table_of_sqlite_is_the_same_in_any_case_that_sqlite_compares(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/shop.db"
    for table in ("rows", "ROWS", "main.Rows", "MAIN.ROWS"):
        assert table_identities(url, table)[-1] == f"{url} table main.rows"
    assert table_identities(url, "É")[-1] != table_identities(url, "é")[-1]


@pytest.mark.parametrize("form", ["file:{}/a.db?uri=true", "file:{}/a.db", "{}/a.db?uri=true"])
def test_a_file_of_sqlite_is_named_by_its_path(tmp_path: Path, form: str):
    (tmp_path / "a.db").touch()
    url = f"sqlite:///{form.format(tmp_path)}"
    with pytest.raises(StorageError, match="not by its path; write sqlite:///PATH"):
        table_identities(url, "rows")
    with pytest.raises(StorageError, match="not by its path"), connect(url, "it cannot be read"):
        pass


def test_a_file_is_the_same_by_each_of_its_links(tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("1.csv", "2.csv", "shop.db"):
        (folder / name).write_text(name)
        os.link(folder / name, tmp_path / name)
    first, second, shop = (f"{tmp_path}/{name}" for name in ("1.csv", "2.csv", "shop.db"))
    gone = f"{tmp_path}/gone.csv"
    known = [first, second, gone, "s3://b/1.csv", f"sqlite:///{shop} table main.ROWS"]
    assert same_places([f"{folder}/1.csv"], known) == [first]
    assert same_places([f"{folder}/*.csv"], known) == [first, second]
    assert same_places([gone, "s3://b/2.csv", "postgresql://b/c table a"], known) == []
    assert same_places([f"sqlite:///{folder}/shop.db table rows"], known) == known[-1:]
    assert same_places([f"sqlite:///{folder}/shop.db table rows2"], known) == []


def test_postgresql_says_which_table_a_name_is(tmp_path: Path):
    with schema() as url:
        place = sa.make_url(url)
        (_, _, name) = place.query["options"].partition("=")
        with connect(url, "made") as server:
            for statement in (
                "CREATE TABLE visits (a int, year int) PARTITION BY LIST (year)",
                "CREATE TABLE old PARTITION OF visits FOR VALUES IN (2025)",
                "CREATE VIEW seen AS SELECT * FROM visits",
            ):
                server.exec_driver_sql(statement)
            server.commit()
        text = place.render_as_string(hide_password=False)
        elsewhere = place.set(host=None, query={"host": place.host, "port": str(place.port)})
        other = elsewhere.render_as_string(hide_password=False)
        here, system = stored_identities(text, "visits")
        assert here == f"postgresql://localhost:5432/{place.database} table {name}.visits"
        assert system.startswith("postgresql system ")
        assert stored_identities(other, f"{name}.visits")[1] == system
        assert stored_identities(text, "seen")[1] == system.replace(".visits", ".seen")
        part = stored_identities(text, "old")
        assert part[1] == f"{system}/{name}.old"
        assert Account("x", "row", "add_remove", (system,)).overlaps(part[1])
        with pytest.raises(
            StorageError, match="table 'none' of source.url cannot be identified, and nothing"
        ):
            stored_identities(text, "none")
