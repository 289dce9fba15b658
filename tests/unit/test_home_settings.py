"""Settings that a home makes for the libraries it starts."""

import os

from tasks.home import Home


def test_compiled_code_is_kept_beside_the_code_where_that_can_be_written(tmp_path):
    environment = {"CLOISTER_HOME": str(tmp_path / "home")}
    Home.current(environment).configure(environment)
    assert "NUMBA_CACHE_DIR" not in environment


def test_compiled_code_is_kept_in_the_home_where_the_installation_is_read_only(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    environment = {"CLOISTER_HOME": str(tmp_path / "home")}
    Home.current(environment).configure(environment)
    assert environment["NUMBA_CACHE_DIR"] == str(tmp_path / "home" / "numba")


def test_settings_of_the_user_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    environment = {"CLOISTER_HOME": str(tmp_path / "home"), "NUMBA_CACHE_DIR": "/elsewhere", "DO_NOT_TRACK": "0"}
    Home.current(environment).configure(environment)
    assert environment["NUMBA_CACHE_DIR"] == "/elsewhere" and environment["DO_NOT_TRACK"] == "0"
