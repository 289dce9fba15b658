"""A table that is written to a file, drafted, and read as its draft declares it."""

import pytest

from cloister.schema.drafts.drafting import draft
from cloister.schema.spec_files.loading import load_spec


@pytest.fixture
def drafted(tmp_path):
    """Drafts a frame or the text of a file: the text of the draft, and its spec."""

    def make(table, name="table.csv", encoding="utf-8", **options):
        path = tmp_path / name
        if isinstance(table, str):
            path.write_text(table, encoding=encoding)
        elif name.endswith(".csv"):
            table.to_csv(path, index=False, **options)
        else:
            table.to_parquet(path, **options)
        text = draft(path)
        (tmp_path / "draft.yaml").write_text(text, encoding="utf-8")
        return text, load_spec(tmp_path / "draft.yaml")

    return make
