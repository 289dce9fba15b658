"""Whether a benchmark can be run at all: checked before anything is made."""

from __future__ import annotations

from cloister.benchmarks.config import REFERENCES, Benchmark, Combination, Peer
from cloister.errors import SpecError, StorageError
from cloister.models.registry import FORMER, METHODS, create
from cloister.schema.spec_files.loading import load_spec


def require_usable(benchmark: Benchmark) -> None:
    """Check everything about a benchmark that needs no data.

    Raises:
        InputError: a spec, method or peer cannot be used, or a table is not there.
    """
    for name in benchmark.peers:
        if name in METHODS or name in FORMER or name in REFERENCES:
            raise SpecError(
                f"the peer '{name}' has the name of a method; give it another one under peers"
            )
    for combination in benchmark.all_combinations():
        spec = load_spec(combination.spec)
        if combination.charged:
            create(combination.method)
        if combination.peer:
            _require_peer(combination, combination.peer, spec.privacy.unit == "row")
        for file in combination.files:
            if not file.is_file():
                raise StorageError(
                    f"the data {file} is not a file; correct datasets in the configuration"
                )


def _require_peer(combination: Combination, peer: Peer, of_rows: bool) -> None:
    """Check that a peer has its files and protects the spec's unit: it knows rows only."""
    for path in (peer.program, peer.requirements):
        if not path.is_file():
            raise StorageError(
                f"{path} of peer '{combination.method}' is not a file; correct peers"
            )
    if not of_rows:
        raise SpecError(
            f"{combination.spec}: peer '{combination.method}' protects rows, not persons; leave "
            "peers out for this dataset, or compare under a spec of unit row"
        )
