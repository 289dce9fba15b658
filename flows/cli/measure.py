"""The command that measures domains: spec measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.figures import count_of
from cloister.flows.cli.options import DataOption, Json, SpecFile, example, user

if TYPE_CHECKING:
    from cloister.flows.measure import DomainMeasurement
    from cloister.flows.outcome import Finished
    from cloister.tasks.home.home import Home
    from cloister.tasks.requests.release_request import ReleaseRequest


def add_measure_command(group: typer.Typer) -> None:
    """Add this command to the group of commands on specs."""
    text = example(
        "cloister spec measure draft.yaml --data people.csv --epsilon 0.5 --out people.yaml"
    )
    group.command("measure", epilog=text)(measure_spec)


def measure_spec(
    spec: SpecFile,
    epsilon: Annotated[str, typer.Option(help="What the measurement spends, exact: 0.5 or 1/3.")],
    out: Annotated[Path, typer.Option(help="The new spec, a new file.")],
    delta: Annotated[
        str | None,
        typer.Option(
            help="Probability that its guarantee fails, less than 1 / rows; by default that of the "
            "declared release."
        ),
    ] = None,
    data: DataOption = None,
    as_json: Json = False,
) -> None:
    """Measure what a spec marks data-derived, with noise and at a charge; write a public spec.

    Bounds, values, grids, missing cells and the number of rows are measured. Names and types become
    public as they are in SPEC: what a draft left unconfirmed is refused. Run again after a crash,
    the same command resumes and charges nothing twice.
    """
    from cloister.tasks.home.home import Home
    from cloister.tasks.release.publish import confirm_delivery
    from cloister.tasks.requests.release_request import ReleaseRequest

    home, by = Home.current(), user()
    request = ReleaseRequest(
        spec=spec, epsilon=epsilon, delta=delta, data=data, out=str(out), by=by
    )
    with confirm_delivery(home, by):
        _show(run_measurement(request, home).to_json(), as_json)


def run_measurement(asked: ReleaseRequest, home: Home) -> DomainMeasurement | Finished:
    """Check what can be checked before an orchestrator is started, then run the flow."""
    from cloister.tasks.release.measure import require_ready
    from cloister.tasks.requests.measurement import domain_request, release_plan

    request = domain_request(asked)
    require_ready(request, home)
    release_plan(request)
    home.prepare()
    return _run(asked.model_copy(update={"delta": request.delta}))


def _run(asked: ReleaseRequest) -> DomainMeasurement | Finished:
    from cloister.flows.cli.console import progress
    from cloister.tasks.home.home import Home
    from cloister.tasks.home.process import reporting_to
    from cloister.tasks.stores.prefect_server import serving

    with progress() as watcher, reporting_to(watcher), serving(Home.current()):
        from cloister.flows.measure import measure

        data = str(asked.data) if asked.data else None
        amounts = (str(asked.epsilon), str(asked.delta))
        return measure(str(asked.spec), *amounts, str(asked.out), data, asked.by)


def _show(done: dict[str, Any], as_json: bool) -> None:
    from cloister.flows.cli.console import show_facts, show_json, show_table

    if as_json:
        show_json(done)
        return
    stages = [(stage["name"], stage["epsilon"], stage["explanation"]) for stage in done["stages"]]
    spent = ("all together", done["accounted_epsilon"], "")
    show_table("Privacy spend", ("stage", "epsilon alone", "what for"), [*stages, spent])
    rows = [(name, keys["type"], _domain(name, done)) for name, keys in done["attributes"].items()]
    show_table("Measured domains", ("attribute", "type", "domain"), rows)
    earlier = (
        " in an earlier run of this command: nothing was charged now" if done.get("earlier") else ""
    )
    show_facts(
        f"Release {done['release']} measured {done['dataset']}{earlier}",
        {
            "rows, with noise": done["rows"],
            "budget left": f"epsilon {done['budget_left']} in {done['budget_window']}",
            "new spec": done["spec"],
            "next": done["problem"] or f"cloister release {done['spec']}",
        },
    )


def _domain(name: str, done: dict[str, Any]) -> str:
    """What was found for an attribute, short."""
    keys = done["attributes"][name]
    if name in done["not_found"]:
        return "nothing was found; declare it, or measure with a larger epsilon"
    words = (
        count_of(len(keys["values"]), "value")
        if "values" in keys
        else f"{keys['min']} to {keys['max']}"
        if "min" in keys
        else ""
    )
    return ", ".join(filter(None, (words, "may be missing" if keys.get("nullable") else "")))
