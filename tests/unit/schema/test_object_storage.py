"""Tables in object storage: files, folders and patterns of objects, read in parts and pinned."""

import re
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from declared_table import TWO, declared
from object_storage import bucket_of_tables

from cloister.errors import DataError, SpecError, StorageError
from cloister.privacy.ledger import Account
from cloister.schema.sources import reading, stored_files
from cloister.schema.sources.parts import read_part, source_parts

ROWS = 100
FRAME = pd.DataFrame(
    {"a": [row % 10 for row in range(ROWS)], "b": [row // 10 for row in range(ROWS)]}
)


@pytest.fixture(scope="module")
def store():
    with bucket_of_tables() as made:
        yield made


@pytest.fixture
def bucket(store):
    yield store
    store.objects.delete()


def parquet(frame=FRAME):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame), sink, row_group_size=20)
    return sink.getvalue().to_pybytes()


def csv(frame=FRAME):
    return frame.to_csv(index=False).encode()


def put(bucket, key, body):
    bucket.put_object(Key=key, Body=body)


def spec_of(folder, place):
    return declared(folder, TWO, {"path": place})


def rows_of(spec, rows=None):
    with source_parts(spec, None, rows) as parts:
        batches = [batch for part in parts for batch in read_part(part, spec)]
    read = [zip(*(batch.cells[n].values() for n in "ab"), strict=True) for batch in batches]
    return [tuple(map(int, row)) for rows in read for row in rows]


EXPECTED = list(FRAME.itertuples(index=False, name=None))


@pytest.mark.parametrize(("key", "body"), [("x/a b+ü.csv", csv()), ("x.parquet", parquet())])
def test_an_object_is_read_whole_and_in_parts(tmp_path, bucket, key, body):
    put(bucket, key, body)
    spec = spec_of(tmp_path, f"s3://tables/{quote(key)}")
    reading.require_declared_columns(spec)
    reading.require_declared_size(spec)
    with source_parts(spec, None, 20) as parts:
        assert len(parts) == -(-(ROWS + key.endswith("csv")) // 20)
    assert rows_of(spec) == rows_of(spec, 20) == EXPECTED
    assert reading.places_of(spec) == (spec.source.path,)


def test_folders_and_patterns_of_objects_are_one_table(tmp_path, bucket):
    for number in (1, 0):
        put(bucket, f"visits/part {number}.parquet", parquet(FRAME[number * 50 :][:50]))
    put(bucket, "visits/_SUCCESS", b"")
    put(bucket, "visits/deeper/part 2.parquet", b"none")
    for place in ("visits", "visits/", "visits/*.parquet", "visits/part*"):
        spec = spec_of(tmp_path, f"s3://tables/{place}")
        if place in ("visits", "visits/part*"):
            assert rows_of(spec, 40) == EXPECTED
        pattern = "part*" if place.endswith("part*") else "*.parquet"
        assert reading.places_of(spec) == (f"s3://tables/visits/{pattern}",)


def test_patterns_are_the_same_place_if_the_store_lists_an_object_for_both(bucket):
    for key in ("x/visits.csv", "x/stays.csv"):
        put(bucket, key, csv())
    known = ["s3://tables/x/visits.csv", "s3://tables/x/*ts.csv", "s3://tables/x/s*ts.csv"]
    known += ["s3://tables/y/*.csv", "s3://none/*.csv", "/x/visits.csv", "postgresql://tables/x"]
    same = {
        "s3://tables/x/vis*.csv": known[:2],
        "s3://tables/%78/visits.csv/": known[:2],
        "s3://tables/x/s*.csv": [],
        "s3://tables/*.csv": [],
        "s3://tables/none*": [],
    }
    for place, equal in same.items():
        assert stored_files.same_places([stored_files.object_identity(place)], known) == equal


def test_a_table_of_a_bucket_keeps_its_name_by_whatever_pattern_it_is_read(tmp_path, bucket):
    put(bucket, "visits.csv", csv())
    pinned = {"place s3://tables/visits.csv": "as table 'visits'"}
    account = Account("clinic", "table:visits", "add_remove", reading=pinned)
    for pattern, bound in (("vis*.csv", pinned), ("stay*.csv", {})):
        read = {f"place s3://tables/{pattern}": "as table 'stays'"}
        fact = {name: "as table 'stays'" for name in bound}
        assert reading.bound_reading(replace(account, reading=read), account) == read | fact


def test_a_replaced_object_ends_the_release(tmp_path, bucket):
    put(bucket, "x.parquet", parquet())
    spec = spec_of(tmp_path, "s3://tables/x.parquet")
    with source_parts(spec, None, 20) as parts:
        assert len(list(read_part(parts[0], spec))) == 1
        put(bucket, "x.parquet", parquet(FRAME[::-1]))
        with pytest.raises(StorageError, match="run the same command, which resumes"):
            list(read_part(parts[0], spec))
        bucket.objects.delete()
        with pytest.raises(StorageError, match="cannot be read"):
            list(read_part(parts[0], spec))


def test_an_object_that_is_not_there_or_not_of_its_format_is_told(tmp_path, bucket):
    for place in ("tables/no.parquet", "tables/none/*.csv", "tables/no/such.csv", "none/x.csv"):
        said = "no file fits it" if "*" in place else "no such bucket or object"
        told = rf"s3://{re.escape(place)} cannot be read \({said}"
        with pytest.raises(StorageError, match=told):
            reading.read_frame(spec_of(tmp_path, f"s3://{place}"))
    put(bucket, "x.parquet", b"a,b\nsecret,2\n")
    with pytest.raises(DataError, match="not a whole Parquet file") as caught:
        reading.read_frame(spec_of(tmp_path, "s3://tables/x.parquet"))
    assert "secret" not in str(caught.value)


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.slow
def test_no_key_is_told_when_access_is_refused(tmp_path, monkeypatch, keys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match=r"the store cannot be reached\); check") as caught:
        reading.read_frame(spec_of(tmp_path, "s3://tables/x.csv"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "status", "code", "said"),
    [
        ("x.csv", 403, "AccessDenied", "access is denied"),
        ("x*.csv", 403, "InvalidAccessKeyId", "access is denied"),
        ("x*.csv", 403, "SignatureDoesNotMatch", "access is denied"),
        ("x*.csv", 404, "NoSuchBucket", "no file fits it.*"),
        pytest.param(
            *("x.csv", 503, "SlowDown", "the store cannot be reached"), marks=pytest.mark.slow
        ),
    ],
)
def test_what_a_store_answers_is_told(tmp_path, monkeypatch, keys, place, status, code, said):
    """Arrow asks in turn for the object, for what is below it, and for names that fit."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(404 if "*" in place else status)
            self.end_headers()

        def do_GET(self):
            below = "*" in place and "prefix=x" in self.path
            text = "<ListBucketResult/>" if below else f"<Error><Code>{code}</Code></Error>"
            body = text.encode()
            self.send_response(200 if below else status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StorageError, match=rf"cannot be read \({said}\)") as caught:
            reading.read_frame(spec_of(tmp_path, f"s3://tables/{place}"))
        server.shutdown()
    assert "hush" not in str(caught.value)


def test_a_bucket_that_is_not_there_when_its_region_is_asked_for_is_told(tmp_path, monkeypatch):
    def from_uri(url):
        raise OSError("Bucket 'tables' not found")

    monkeypatch.setattr(stored_files.fs, "FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(StorageError, match=r"s3://tables/x.csv cannot be read \(no such bucket\)"):
        reading.read_frame(spec_of(tmp_path, "s3://tables/x.csv"))


def test_other_schemes_and_urls_with_keys_are_no_source(tmp_path):
    for place in ("S3://tables/x.csv", "s3://tables/x y.csv"):
        with pytest.raises(StorageError, match=r"s3:// names no object storage .* as in URLs"):
            reading.read_frame(spec_of(tmp_path, place))
    for place in (
        *("http://tables/x.csv", "nonsense://tables/x.csv", "s3://ours:hush@tables/x.csv"),
        "s3://tables/x.csv?access_key=ours&secret_key=hush",
    ):
        with pytest.raises(SpecError, match="source.path") as caught:
            spec_of(tmp_path, place)
        assert "environment" in str(caught.value) and "hush" not in str(caught.value)
