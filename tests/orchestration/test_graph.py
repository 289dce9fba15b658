"""The graph of a release as Prefect draws it: every step follows those whose result it takes."""

import gc
import weakref

import pytest
from quick_release import quick_release

from cloister.flows.cli.app import run
from cloister.tasks.data.sources import TablesSource


@pytest.fixture(scope="module", autouse=True)
def late_imports():
    global cloister
    import cloister.tasks.release.publish


FOLLOWS = {
    "plan_release": set(),
    "reserve_budget": {"plan_release"},
    "open_data": {"reserve_budget"},
    "fit_model": {"open_data"},
    "sample_rows": {"fit_model"},
    "evaluate_release": {"sample_rows"},
    "write_certificate": {"sample_rows"},
    "record_release": {"evaluate_release", "write_certificate"},
}
"""Eight nodes, and no two edges that cross: a path that parts once and meets again."""


def test_the_graph_of_a_run_is_a_path_that_parts_once(released):
    """As the server draws it: each step's function, and those whose results it takes."""
    assert {name: set(step["follows"]) for name, step in released.steps.items()} == FOLLOWS


def test_rows_are_gone_when_the_flow_has_ended(place, prefect_server, monkeypatch):
    monkeypatch.setattr(cloister.tasks.release.publish, "register_release", lambda *_: "")
    monkeypatch.setattr(cloister.tasks.release.publish, "version_release", lambda *_: None)
    alive = []
    read = TablesSource.read_rows

    def watched(*given):
        rows, digest = read(*given)
        alive.append(weakref.ref(rows))
        return rows, digest

    monkeypatch.setattr(TablesSource, "read_rows", watched)
    assert run(quick_release(place)) == 0
    gc.collect()
    assert [rows() for rows in alive] == [None]
