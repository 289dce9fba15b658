"""Empty schemas on the PostgreSQL server of the tests."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url

POSTGRES = os.environ.get(
    "CLOISTER_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1:5432/test"
)


def connect_to_postgres() -> psycopg.Connection:
    """A connection to the test server; without one the test is skipped, in CI it fails."""
    url = make_url(POSTGRES).set(drivername="postgresql")
    try:
        return psycopg.connect(
            url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5
        )
    except psycopg.OperationalError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("no PostgreSQL server: set CLOISTER_TEST_POSTGRES")


@contextmanager
def schema() -> Iterator[str]:
    """The URL of an empty schema on the test server, removed afterwards."""
    name = f"cloister_{uuid.uuid4().hex}"
    with connect_to_postgres() as server:
        server.execute(f"CREATE SCHEMA {name}")
    try:
        url = make_url(POSTGRES).update_query_dict({"options": f"-csearch_path={name}"})
        yield url.render_as_string(hide_password=False)
    finally:
        with connect_to_postgres() as server:
            server.execute(f"DROP SCHEMA {name} CASCADE")
