"""Text keys that are missing in a declared share of rows, and what is said where none is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shape import Shape, release_once
from specs import spec_of

from cloister.constraints.counting import count_violations
from cloister.schema.attributes import TextKey
from cloister.schema.columns import Serial
from cloister.schema.domain import column_of
from cloister.tasks.requests.plan import plan_of
from cloister.tasks.requests.plan_report import plan_warnings
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

ROWS = 2_000
REMARK = {"type": "text", "pattern": "R{0001..9999}", "nullable": True}


def complaints(remark, **options):
    """Complaints, of which one in ten has a remark."""
    remarks = [f"R{n:04d}" if n % 10 == 0 else None for n in range(ROWS)]
    frame = pd.DataFrame({"remark": remarks, "kind": ["late", "lost"] * (ROWS // 2)})
    kind = {"type": "categorical", "values": ["late", "lost"]}
    rules = [{"key": ["remark"]}]
    return Shape(
        frame, spec_of("complaints", ROWS, {"remark": remark, "kind": kind}, rules, **options)
    )


def keys(share, name="remark"):
    column = column_of(name, TextKey(**REMARK, missing_share=share), Path())
    assert isinstance(column, Serial)
    return column


@pytest.mark.parametrize("method", ["mixture", "independent"])
def test_keys_are_missing_in_the_declared_share_of_rows(method, brief_training):
    """Without a share each row has a key."""
    trial = release_once(complaints({**REMARK, "missing_share": 0.9}, method=method), 1, method)
    drawn = trial.synthetic.frame()["remark"]
    assert drawn.isna().mean() == pytest.approx(0.9, abs=0.05)
    assert drawn.dropna().is_unique
    assert all(count_violations(rule, trial.synthetic) == 0 for rule in trial.task.hard)
    trial = release_once(complaints(REMARK, method=method), 1, method)
    assert trial.synthetic.frame()["remark"].notna().all()


def test_which_rows_lack_a_key_depends_on_their_numbers_alone():
    rows = np.arange(5_000)
    whole = keys(0.3).fresh(rows)
    parts = np.concatenate([keys(0.3).fresh(rows[:17]), keys(0.3).fresh(rows[17:])])
    assert np.array_equal(whole, parts)
    missing, unnoted = (keys(0.3, name).fresh(rows) == 9_999 for name in ("remark", "note"))
    assert np.mean(missing & unnoted) == pytest.approx(0.09, abs=0.03)
    assert np.array_equal(keys(1).fresh(rows), np.full(5_000, keys(1).null_code))


@pytest.mark.parametrize(("declared", "warned"), [({}, True), ({"missing_share": 0.9}, False)])
def test_a_plan_warns_of_keys_that_every_row_will_have(tmp_path, declared, warned):
    path = complaints(REMARK | declared, method="independent").write(tmp_path)
    request = resolve(ReleaseRequest(spec=path))
    said = " ".join(plan_warnings(request, public_context_of(request), plan_of(request)))
    assert ("'remark' may be missing" in said) is warned
