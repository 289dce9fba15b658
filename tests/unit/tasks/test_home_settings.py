"""Settings that a home makes for the libraries it starts."""

import os

import pytest

from cloister.errors import StorageError
from cloister.privacy.ledger import Anchor
from cloister.tasks.home.home import Home, open_to_others


@pytest.fixture
def configured(tmp_path):
    """The environment that a home makes of these settings."""

    def of(**settings):
        environment = {"CLOISTER_HOME": str(tmp_path / "home"), **settings}
        Home.current(environment).configure(environment)
        return environment

    return of


def test_compiled_code_is_kept_beside_the_code_or_in_the_home_if_that_is_read_only(
    configured, tmp_path, monkeypatch
):
    """Settings of the user stay."""
    assert "NUMBA_CACHE_DIR" not in configured()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert configured()["NUMBA_CACHE_DIR"] == str(tmp_path / "home" / "numba")
    kept = {"NUMBA_CACHE_DIR": "/elsewhere", "DO_NOT_TRACK": "0"}
    assert configured(**kept).items() >= kept.items()


def test_a_temporary_server_asks_for_a_password_that_differs_each_time(tmp_path):
    given = []
    for _ in range(2):
        environment = {"CLOISTER_HOME": str(tmp_path / "home")}
        Home.current(environment).configure(environment)
        given.append(environment["PREFECT_SERVER_API_AUTH_STRING"])
        assert environment["PREFECT_API_AUTH_STRING"] == given[-1]
    assert len(set(given)) == 2 and min(map(len, given)) > 30


@pytest.fixture
def lax(tmp_path):
    """A home that existed before, open to all, under the laxest umask."""
    home = Home.current({"CLOISTER_HOME": str(tmp_path / "home")})
    before = os.umask(0)
    (home.folder / "releases" / "r-1").mkdir(parents=True, mode=0o777)
    (home.folder / "key").write_bytes(bytes(32))
    (home.folder / "releases" / "r-1" / "order.json").write_text("{}")
    (tmp_path / "outside").write_text("")
    (home.folder / "link").symlink_to(tmp_path / "outside")
    yield home
    os.umask(before)


def test_a_home_that_existed_is_closed_with_all_that_is_in_it_and_what_is_made_after(lax, tmp_path):
    assert len(list(open_to_others(lax.folder))) == 5
    lax.prepare()
    (lax.folder / "new").mkdir()
    (lax.folder / "new" / "file").write_text("")
    assert list(open_to_others(lax.folder)) == []
    assert lax.folder.stat().st_mode & 0o777 == 0o700
    assert (lax.folder / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o666


def test_a_home_of_another_user_is_refused(lax, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: lax.folder.stat().st_uid + 1)
    with pytest.raises(StorageError, match="belongs to another user"):
        lax.prepare()


def test_the_end_of_the_ledger_never_runs_back(lax):
    for seq in (3, 2, 4, 1):
        lax.write_end(Anchor(seq, "ab"))
    assert lax.end.read_text() == "4:ab\n"
