"""The tables of a benchmark as Markdown, between two markers of a document.

What is outside them stays.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloister.benchmarks.config import Benchmark, Experiment, Peer
from cloister.benchmarks.pages.figures import Table
from cloister.errors import InputError, StorageError
from cloister.tasks.home.process import code_version

SECTION = re.compile(r"^(?=### )", re.MULTILINE)
"""Where the section of an experiment begins."""

_MADE_BY = re.compile(r"Cloister ([0-9.]+\+[0-9a-f]{16})(?: \(older code\))?")
"""The code by which figures say that they were made; marked where it is no longer the code."""


@dataclass(frozen=True)
class Section:
    """What is shown of one experiment: its tables, its figures, and what failed."""

    experiment: Experiment
    tables: tuple[Table, ...]
    plots: tuple[Path, ...]
    failures: tuple[str, ...]


def markers(name: str) -> tuple[str, str]:
    """The lines between which a document holds what was generated for a benchmark."""
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def require_markers(document: Path, name: str) -> None:
    """Check that a document has both markers, in order, and can be written.

    Raises:
        StorageError: the document cannot be read or written.
        InputError: it has no place for the tables.
    """
    _parts(document, name)
    if not os.access(document, os.W_OK):
        raise StorageError(f"{document} cannot be written; correct its rights")


def insert(document: Path, name: str, text: str) -> None:
    """Replace the text between the markers of a document, and mark its figures of older code."""
    begin, end = markers(name)
    before, _, after = _parts(document, name)
    whole = f"{before}{begin}\n{text.strip()}\n{end}{after}"
    document.write_text(mark_older(whole, code_version()), encoding="utf-8")


def mark_older(text: str, code: str) -> str:
    """The text, in which figures that were made by other code than this are marked so."""

    def marked(made: re.Match[str]) -> str:
        return f"Cloister {made[1]}{'' if made[1] == code else ' (older code)'}"

    return re.sub(_MADE_BY, marked, text)


def insert_sections(document: Path, name: str, fresh: Sequence[str]) -> None:
    """Replace the sections of the same headings between the markers; new ones come last."""
    opening, *sections_before = re.split(SECTION, _parts(document, name)[1])
    sections = {text.partition("\n")[0]: text.strip() for text in [*sections_before, *fresh]}
    insert(document, name, "\n\n".join([opening.strip(), *sections.values()]))


def render(benchmark: Benchmark, command: str, sections: Sequence[Section], document: Path) -> str:
    """The Markdown of a benchmark; figures are named relative to the document."""
    texts = [_section(section, command, document, "") for section in sections]
    return "\n\n".join([_preamble(benchmark, command, len(benchmark.seeds)), *texts])


def render_alone(
    benchmark: Benchmark, command: str, sections: Sequence[Section], document: Path
) -> list[str]:
    """The Markdown of single experiments, each of which says where and when it was measured."""
    texts = []
    for section in sections:
        runs = len(section.experiment.seeds or benchmark.seeds)
        said = _preamble(benchmark, command, runs)
        texts.append(_section(section, command, document, said))
    return texts


def _section(section: Section, command: str, document: Path, said: str) -> str:
    """The heading of an experiment, what is ``said`` of it, its tables, figures and failures."""
    parts = [f"### {section.experiment.title}", said, section.experiment.note.strip()]
    parts += [
        f"{table.title}:\n\n```sh\n{command}\n```\n\n{markdown(table)}" for table in section.tables
    ]
    parts += [
        f"![{plot.stem}]({plot.relative_to(document.parent).as_posix()})" for plot in section.plots
    ]
    parts += [f"Failed: {failure}" for failure in section.failures]
    return "\n\n".join(part for part in parts if part)


def markdown(table: Table) -> str:
    """A table in GitHub's Markdown."""
    lines = [table.headings, ("---",) * len(table.headings), *table.rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )


def surroundings() -> dict[str, str]:
    """Where and when figures were measured: they mean little without."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "code": code_version(),
        "cores": str(os.cpu_count()),
        "threads": os.environ.get("OMP_NUM_THREADS", "all cores"),
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def _preamble(benchmark: Benchmark, command: str, runs: int) -> str:
    where = surroundings()
    public = "; ".join(f"{name}: {dataset.public}" for name, dataset in benchmark.datasets.items())
    repeats = "one run each" if runs == 1 else f"mean ± deviation of {runs} runs"
    return (
        f"Generated by `{command}` on {where['date']}; do not edit. Cloister {where['code']}, "
        f"{where['cores']} cores, threads: {where['threads']}, {where['platform']}; delta "
        f"{float(benchmark.delta):g}; {repeats}. Measures against real rows are not private; these "
        f"are shown since the tables are public data sets ({public}). Peak memory is that of the "
        f"largest process.{_peers(benchmark)}"
    )


def _peers(benchmark: Benchmark) -> str:
    """A paragraph on the peers, if there are any: their inputs, and who claims their privacy."""
    if not benchmark.peers:
        return ""
    named = ", ".join(
        f"{name} (`{peer.script}`, {_inputs(peer)}, at most {peer.seconds:g} CPU s)"
        for name, peer in benchmark.peers.items()
    )
    return (
        "\n\nPeers are other libraries, each in an environment of its own on one core, given the "
        f"public domains: {named}. What they give is no Cloister release: no ledger was charged, "
        "and their epsilon is what they claim. Their seconds are those of fitting and drawing "
        "alone; a value is drawn evenly inside each cell."
    )


def _inputs(peer: Peer) -> str:
    options = [f"{name} {value}" for name, value in peer.options.items()]
    given = {"declared": "declared bins", "read": "the bins that marginals are read by"}[peer.cells]
    return ", ".join((peer.method, *options, given))


def _parts(document: Path, name: str) -> tuple[str, str, str]:
    """The text before, between and after the markers of a benchmark."""
    try:
        text = document.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{document} cannot be read ({error.strerror}); make it, with two markers"
        ) from None
    begin, end = markers(name)
    before, marker, rest = text.partition(begin)
    inside, closed, after = rest.partition(end)
    if not (marker and closed):
        raise InputError(
            f"{document} has no lines '{begin}' and '{end}'; write them where the tables belong"
        )
    return before, inside, after
