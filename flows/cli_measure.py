"""The command that measures domains: spec measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, SpecFile, example, user

if TYPE_CHECKING:
    from flows.measure import Measurement
    from tasks.orders import Options


def add_to(group: typer.Typer) -> None:
    """Add this command to the group of commands on specs."""
    text = example("cloister spec measure draft.yaml --data people.csv --epsilon 0.5 --delta 1e-7 --out people.yaml")
    group.command("measure", epilog=text)(measure_spec)


def measure_spec(
    spec: SpecFile,
    epsilon: Annotated[str, typer.Option(help="What the measurement spends, exact: 0.5 or 1/3.")],
    delta: Annotated[str, typer.Option(help="Probability that its guarantee fails, less than 1 / rows.")],
    out: Annotated[Path, typer.Option(help="The new spec, a new file.")],
    data: Annotated[Path | None, typer.Option(help="The data, in place of the spec's source.")] = None,
    as_json: Json = False,
) -> None:
    """Measure what a spec marks data-derived, with noise and at a charge, and write a new spec that may be handed on.

    Bounds, values, missing cells and the number of rows are measured. Names and types stay as they stand in SPEC:
    they become public. Run again after a crash, the same command goes on and charges nothing twice.
    """
    from tasks.domains import domain_order, release_plan, require_ready
    from tasks.home import Home
    from tasks.orders import Options

    home, options = Home.current(), Options(epsilon=epsilon, delta=delta, data=data, out=out)
    order = domain_order(spec, options, user())
    require_ready(order, home)
    release_plan(order)
    home.prepare()
    _show(_run(spec, options), as_json)


def _run(spec: Path, options: Options) -> Measurement:
    from flows.console import progress
    from tasks.progress import watched_by

    with progress() as watcher, watched_by(watcher):
        from flows.measure import measure

        data = str(options.data) if options.data else None
        return measure(str(spec), str(options.epsilon), str(options.delta), str(options.out), data, user())


def _show(done: Measurement, as_json: bool) -> None:
    from cloister.privacy.ledger.exact import decimal
    from flows.console import facts, show_json, table

    if as_json:
        show_json(done.to_json())
        return
    stages = [(stage.name, stage.epsilon, stage.explanation) for stage in done.stages]
    table("Privacy spend", ("stage", "epsilon alone", "what for"), [*stages, ("all together", done.spent, "")])
    rows = [(name, keys["type"], _domain(name, done)) for name, keys in done.found.attributes.items()]
    table("Measured domains", ("attribute", "type", "domain"), rows)
    facts(
        f"Release {done.release} measured {done.budget.budget.dataset}",
        {
            "rows, with noise": done.found.rows,
            "budget left": f"epsilon {decimal(done.budget.left)} in {done.budget.window}",
            "new spec": done.written.path,
            "next": done.written.problem or f"cloister release {done.written.path}",
        },
    )


def _domain(name: str, done: Measurement) -> str:
    """What was found for an attribute, short."""
    keys = done.found.attributes[name]
    if name in done.found.empty:
        return "nothing was found; declare it, or measure with a larger epsilon"
    words = (
        f"{len(keys['values'])} values"
        if "values" in keys
        else f"{keys['min']} to {keys['max']}"
        if "min" in keys
        else ""
    )
    return ", ".join(filter(None, (words, "may be missing" if keys.get("nullable") else "")))
