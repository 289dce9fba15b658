"""The graph of a release as Prefect draws it: every step follows those whose result it takes."""

import asyncio
import gc
import weakref

from quick_release import quick_release
from recorded import task_runs_of

import cloister.flows.release
from cloister.flows.cli.app import run
from cloister.tasks.data.sources import TableSource

EDGES = {
    "sequence": set(),
    "search": {"sequence"},
    "stores": set(),
    "reserve": {"search", "stores"},
    "validate": {"reserve"},
    "spend": {"search", "validate"},
    "train": {"search", "spend"},
    "weights": {"search", "spend", "train"},
    "sample": {"reserve", "weights"},
    "evaluate": {"spend", "sample"},
    "certify": {"reserve", "spend", "search", "weights", "sample"},
    "register": {"certify", "evaluate"},
    "version": {"certify"},
    "publish": {"certify", "register", "version"},
}

FUNCTIONS = {
    "sequence_attributes": "sequence",
    "search_parameters": "search",
    "prepare_stores": "stores",
    "reserve_budget": "reserve",
    "validate_data": "validate",
    "spend_budget": "spend",
    "train_model": "train",
    "weigh_constraints": "weights",
    "sample_rows": "sample",
    "evaluate_release": "evaluate",
    "write_certificate": "certify",
    "register_release": "register",
    "version_release": "version",
    "publish_release": "publish",
}


def function_of(run) -> str:
    """The function of a task run; a task of another test may be recorded with the flow's."""
    return run.task_key.split("-")[0]


def test_the_graph_has_every_edge(released):
    steps = [run for run in asyncio.run(task_runs_of(released.id)) if function_of(run) in FUNCTIONS]
    names = {made.id: FUNCTIONS[function_of(made)] for made in steps}
    kinds = dict(zip(names.values(), steps, strict=True))
    for step, expected in EDGES.items():
        made = kinds[step]
        found = {
            names[one.id]
            for inputs in made.task_inputs.values()
            for one in inputs
            if hasattr(one, "id")
        }
        assert expected <= found, step


def test_rows_are_gone_when_the_flow_has_ended(place, prefect_server, monkeypatch):
    monkeypatch.setattr(cloister.flows.release, "register_release", lambda *_: "")
    monkeypatch.setattr(cloister.flows.release, "version_release", lambda *_: None)
    alive = []
    read = TableSource.read_rows

    def watched(*given):
        rows, digest = read(*given)
        alive.append(weakref.ref(rows))
        return rows, digest

    monkeypatch.setattr(TableSource, "read_rows", watched)
    assert run(quick_release(place)) == 0
    gc.collect()
    assert [rows() for rows in alive] == [None]
