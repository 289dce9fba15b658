"""The rows of a frame that validation keeps, as a release reads those of a source."""

import pandas as pd

from cloister.schema.sources.batches import SourceBatch, SourceCells, require_columns
from cloister.schema.validation import Validation


def validate_rows(frame, spec):
    """The typed rows that :class:`Validation` keeps, and the report."""
    require_columns(list(frame.columns), list(spec.attributes), "the table")
    validation = Validation.of(spec)
    rows = validation.check(batch_of(frame))
    report = validation.report()
    return pd.DataFrame({name: rows.typed(name) for name in spec.attributes}), report


def batch_of(frame):
    """All rows of a frame."""
    return SourceBatch({str(name): SourceCells.of_series(frame[name]) for name in frame.columns})
