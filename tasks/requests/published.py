"""What receivers check of synthetic tables, and the same check before they get them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cloister.constraints.schema_file import PublishedSchema, PublishedTable, broken_rules
from cloister.errors import SampleError
from cloister.models.task import Task
from cloister.tasks.requests.public_context import PublicContext


def published_schema(context: PublicContext) -> PublishedSchema:
    """What is declared of the synthetic tables, by the names of their files."""
    task, spec = context.task, context.spec
    keys, across = ((), ()) if isinstance(task, Task) else (task.schema.keys, task.across)
    tables = {
        context.files[name]: PublishedTable(
            part.one.domain,
            part.one.constraints,
            spec.tables[name].key if spec.tables else None,
        )
        for name, part in context.tables.items()
    }
    return PublishedSchema(spec.name, tables, keys, across)


def require_published_schema(context: PublicContext, files: Mapping[str, Path]) -> None:
    """Check the Parquet files of synthetic tables, by table, as their receivers can.

    Raises:
        SampleError: names the columns and constraints that are broken.
    """
    if broken := _broken(context, files):
        raise SampleError(
            f"the rows that were drawn break their published schema ({', '.join(broken)}); they "
            "are not published: run the same command again, or report this"
        )


def schema_warnings(context: PublicContext, places: Mapping[str, str]) -> tuple[str, ...]:
    """What to say of synthetic tables, by table, that their receivers will find broken.

    Nothing of CSV files and databases, which do not keep the types.
    """
    files = {name: Path(place) for name, place in places.items() if place.endswith(".parquet")}
    if len(files) < len(places) or not (broken := _broken(context, files)):
        return ()
    return (f"the synthetic rows break their published schema: {', '.join(broken)}",)


def _broken(context: PublicContext, files: Mapping[str, Path]) -> tuple[str, ...]:
    placed = {context.files[name]: file for name, file in files.items()}
    return broken_rules(published_schema(context), placed)
