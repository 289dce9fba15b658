"""Settings that a home makes for the libraries it starts."""

import os

import pytest

from cloister.errors import StorageError
from cloister.privacy.ledger import Anchor
from cloister.tasks.home.home import Home, open_to_others


def test_compiled_code_is_kept_beside_the_code_where_that_can_be_written(tmp_path):
    environment = {"CLOISTER_HOME": str(tmp_path / "home")}
    Home.current(environment).configure(environment)
    assert "NUMBA_CACHE_DIR" not in environment


def test_compiled_code_is_kept_in_the_home_where_the_installation_is_read_only(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    environment = {"CLOISTER_HOME": str(tmp_path / "home")}
    Home.current(environment).configure(environment)
    assert environment["NUMBA_CACHE_DIR"] == str(tmp_path / "home" / "numba")


def test_settings_of_the_user_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    environment = {
        "CLOISTER_HOME": str(tmp_path / "home"),
        "NUMBA_CACHE_DIR": "/elsewhere",
        "DO_NOT_TRACK": "0",
    }
    Home.current(environment).configure(environment)
    assert environment["NUMBA_CACHE_DIR"] == "/elsewhere" and environment["DO_NOT_TRACK"] == "0"


def test_a_temporary_server_asks_for_a_password_that_differs_each_time(tmp_path):
    given = []
    for _ in range(2):
        environment = {"CLOISTER_HOME": str(tmp_path / "home")}
        Home.current(environment).configure(environment)
        given.append(environment["PREFECT_SERVER_API_AUTH_STRING"])
        assert environment["PREFECT_API_AUTH_STRING"] == given[-1]
    assert len(set(given)) == 2 and min(map(len, given)) > 30


@pytest.mark.parametrize("name", ["PREFECT_API_URL", "PREFECT_API_AUTH_STRING"])
def test_an_empty_setting_is_none(tmp_path, name):
    environment = {"CLOISTER_HOME": str(tmp_path), name: ""}
    Home.current(environment).configure(environment)
    assert len(environment["PREFECT_API_AUTH_STRING"]) > 30


def test_a_temporary_server_has_the_password_of_the_user(tmp_path):
    environment = {"CLOISTER_HOME": str(tmp_path), "PREFECT_SERVER_API_AUTH_STRING": "me:own"}
    Home.current(environment).configure(environment)
    assert environment["PREFECT_API_AUTH_STRING"] == "me:own"


def test_a_server_of_the_user_keeps_its_password(tmp_path):
    environment = {"CLOISTER_HOME": str(tmp_path), "PREFECT_API_URL": "http://127.0.0.1:1/api"}
    Home.current(environment).configure(environment)
    assert "PREFECT_API_AUTH_STRING" not in environment


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


def test_a_home_that_existed_is_closed_with_all_that_is_in_it(lax, tmp_path):
    assert len(list(open_to_others(lax.folder))) == 5
    lax.prepare()
    assert list(open_to_others(lax.folder)) == []
    assert lax.folder.stat().st_mode & 0o777 == 0o700
    assert (lax.folder / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o666


def test_what_a_process_makes_after_it_has_opened_a_home_is_private(lax):
    lax.prepare()
    (lax.folder / "new").mkdir()
    (lax.folder / "new" / "file").write_text("")
    assert list(open_to_others(lax.folder)) == []


def test_a_home_of_another_user_is_refused(lax, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: lax.folder.stat().st_uid + 1)
    with pytest.raises(StorageError, match="belongs to another user"):
        lax.prepare()


def test_the_end_of_the_ledger_never_runs_back(lax):
    for seq in (3, 2, 4, 1):
        lax.write_end(Anchor(seq, "ab"))
    assert lax.end.read_text() == "4:ab\n"
