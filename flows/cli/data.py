"""Commands on tables and specs: evaluate, constraints check, spec draft, check and measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloister.evaluation import Level
from cloister.figures import count_of
from cloister.flows.cli import options
from cloister.tasks.home.identity import identity

if TYPE_CHECKING:
    from cloister.flows.measure import DomainMeasurement
    from cloister.flows.release import Finished
    from cloister.tasks.home.home import Home
    from cloister.tasks.requests.release_request import ReleaseRequest


def add_measure_command(group: typer.Typer) -> None:
    """Add this command to the group of commands on specs."""
    text = options.example(
        "cloister spec measure draft.yaml --data people.csv --epsilon 0.5 --out people.yaml"
    )
    group.command("measure", epilog=text)(measure_spec)


def measure_spec(
    spec: options.SpecFile,
    epsilon: Annotated[str, typer.Option(help="What the measurement spends, exact: 0.5 or 1/3.")],
    out: Annotated[Path, typer.Option(help="The new spec, a new file.")],
    delta: Annotated[
        str | None,
        typer.Option(
            help="Probability that its guarantee fails, less than 1 / rows; by default that of the "
            "declared release."
        ),
    ] = None,
    data: options.DataOption = None,
    as_json: options.Json = False,
) -> None:
    """Measure what a spec marks data-derived, with noise and at a charge; write a public spec.

    Bounds, values, grids, missing cells and the number of rows are measured. Names and types become
    public as they are in SPEC: what a draft left unconfirmed is refused. Run again after a crash,
    the same command resumes and charges nothing twice.
    """
    from cloister.tasks.home.home import Home
    from cloister.tasks.release.publish import confirm_delivery
    from cloister.tasks.requests.release_request import ReleaseRequest

    home, by = Home.current(), identity()
    request = ReleaseRequest(
        spec=spec, epsilon=epsilon, delta=delta, data=data, out=str(out), by=by
    )
    with confirm_delivery(home, by):
        _show(run_measurement(request, home).to_json(), as_json)


def run_measurement(request: ReleaseRequest, home: Home) -> DomainMeasurement | Finished:
    """Check what can be checked before an orchestrator is started, then run the flow."""
    from cloister.tasks.release.measure import require_ready
    from cloister.tasks.requests.measurement import domain_request, release_plan

    resolved = domain_request(request)
    require_ready(resolved, home)
    release_plan(resolved)
    home.prepare()
    return _run(request.model_copy(update={"delta": resolved.delta}))


def _run(request: ReleaseRequest) -> DomainMeasurement | Finished:
    from cloister.flows.cli.console import progress
    from cloister.tasks.home.home import Home
    from cloister.tasks.home.process import reporting_to
    from cloister.tasks.stores.prefect_server import serving

    with progress() as watcher, reporting_to(watcher), serving(Home.current()):
        from cloister.flows.measure import measure

        data = str(request.data) if request.data else None
        amounts = (str(request.epsilon), str(request.delta))
        return measure(str(request.spec), *amounts, str(request.out), data, request.by)


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


DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data", help="The real table, CSV or Parquet; by default that of the spec's source."
    ),
]


def add_data_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(
        "evaluate",
        epilog=options.example(
            "cloister evaluate data/specs/demo.yaml --data data/raw/demo.csv --synthetic "
            "out/synthetic.parquet"
        ),
    )(evaluate_table)
    constraints = options.command_group(app, "constraints", "Exact violations of constraints.")
    constraints.command(
        "check",
        epilog=options.example(
            "cloister constraints check data/specs/demo.yaml --data data/raw/demo.csv"
        ),
    )(check_constraints)
    spec = options.command_group(
        app, "spec", "Specs: draft one from data, check it, measure its bounds."
    )
    spec.command(
        "draft",
        epilog=options.example(
            "cloister spec draft data/raw/demo.csv --out data/specs/mine.yaml",
            "cloister spec draft users.csv films.csv ratings.csv --out films.yaml",
            "cloister spec draft postgresql://reader@localhost/shop --out shop.yaml",
        ),
    )(draft_spec)
    spec.command("check", epilog=options.example("cloister spec check data/specs/demo.yaml"))(
        check_spec
    )
    add_measure_command(spec)


def evaluate_table(
    spec: options.SpecFile,
    synthetic: Annotated[
        str,
        typer.Option(
            help="The synthetic table, CSV or Parquet; of several tables their folder, or the URL "
            "of a database."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="The real rows likewise; by default those of the spec's source."),
    ] = None,
    level: Annotated[Level, typer.Option(help="full trains models too.")] = "quick",
    panel: Annotated[
        options.PanelOption, typer.Option(help="The models of level full.")
    ] = options.PanelOption.nine,
    target: Annotated[
        list[str] | None, typer.Option(help="Predict this attribute; else all targets.")
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Real rows that took no part in the release, to attack membership; level full."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for evaluation.json, tables and plots.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to train: auto, cpu, cuda or cuda:NUMBER.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure a synthetic table against the real one. Internal: the figures are not private.

    Of several tables, each alone and what relates them: references, degrees, joint tables and
    queries across foreign keys.
    """
    from cloister.devices import AUTO, resolve_device
    from cloister.flows.cli.console import show_facts, show_json, warn
    from cloister.flows.cli.reports import INTERNAL_NOTE, show_metrics
    from cloister.tasks.home.home import Home
    from cloister.tasks.release.comparison import EvaluationOptions, compare_files, write_evaluation

    on = resolve_device(device or AUTO)
    settings = EvaluationOptions(level, panel.value, tuple(target or ()), held_out, on)
    evaluation = compare_files(spec, data, synthetic, settings, Home.current())
    if out:
        write_evaluation(evaluation, out)
    if as_json:
        show_json(evaluation.to_dict())
        return
    show_metrics(evaluation)
    for sentence in evaluation.warnings:
        warn(sentence)
    show_facts(
        "Evaluation",
        {"level": level, "files": out or "none written; see --out", "note": INTERNAL_NOTE},
    )


def check_constraints(
    spec: options.SpecFile, data: DataFile = None, as_json: options.Json = False
) -> None:
    """Count exact violations of each constraint: rows, or unordered pairs of rows. Internal.

    Leaves with exit code 1 if a hard constraint is violated.
    """
    from cloister.figures import percent
    from cloister.flows.cli.console import show_json, show_table
    from cloister.tasks.release.comparison import violations_of

    reports = violations_of(spec, data)
    if as_json:
        show_json([vars(report) for report in reports])
    else:
        rows = [
            (r.name, "hard" if r.hard else "soft", r.violations, percent(r.percent))
            for r in reports
        ]
        show_table(
            "Violations",
            ("constraint", "kind", "violations", "of all"),
            rows,
            "exact counts, internal",
        )
    if any(report.hard and report.violations for report in reports):
        raise typer.Exit(1)


def draft_spec(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="The table, CSV or Parquet; several tables; or the URL of a database.",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The spec to write, a new file.")] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="This table of a database; repeat for more.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Draft a spec for a table, for several that refer to each other, or from a database's schema.

    Every guess is marked; a release refuses it until a person declares it.

    Names, types and the like are listed under unconfirmed; delete an item to confirm it. Declare
    what is marked data-derived public, or measure it. Keys of several files, and the columns that
    refer to them, are found in their rows, and the unit is the table that others belong to. Of a
    database no row is read: keys, types and
    what may be missing are those of its schema.
    """
    from cloister.flows.cli.console import say, show_json
    from cloister.schema.drafts.reflection import write_draft

    text = write_draft(files, out, table or ())
    if as_json:
        show_json({"spec": text, "file": str(out) if out else None})
    else:
        say(
            f"{out} is written. Read through what it calls unconfirmed, then delete that line; "
            "declare each data-derived attribute public, or have it measured: cloister spec measure"
            if out
            else text
        )


def check_spec(spec: options.SpecFile, as_json: options.Json = False) -> None:
    """Check a spec: form, bounds, constraints, and whether a release would take it.

    Lists where all declarations come from, and warns of those without a source. Touches no data.
    """
    from cloister.figures import count_of
    from cloister.flows.cli.console import show_facts, show_json, show_table, warn
    from cloister.flows.cli.plans import budget_notes
    from cloister.tasks.requests.plan import checked_spec, request_of_spec

    declared, notes = checked_spec(spec), budget_notes(request_of_spec(spec))
    if as_json:
        show_json(declared | {"budget": notes})
    else:
        lists = ("provenance", "without a source", "not stated", "warnings")
        facts = {name: value for name, value in declared.items() if name not in lists}
        show_facts(f"{spec} can be {'planned' if declared['warnings'] else 'released'}", facts)
        rows = [(source, ", ".join(names)) for source, names in declared["provenance"].items()]
        show_table("Where declarations come from", ("provenance", "of"), rows)
    for sentence in (*declared["warnings"], *notes):
        warn(sentence)
    if names := declared["without a source"]:
        warn(
            f"{count_of(len(names), 'declaration')} without a source: {', '.join(names)}; write in "
            "provenance where bounds and values are publicly known from, such as a law, or a form "
            "and its page"
        )
    if names := declared["not stated"]:
        warn(
            f"about: does not state {', '.join(names)}; the certificate says so to whoever reads it"
        )
