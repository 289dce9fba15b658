"""What a step says of the data: nothing, by no error and no warning."""

import warnings

import pytest

from cloister.errors import CloisterError


def late_imports():
    global report_progress
    from cloister.tasks.stores.prefect_runs import report_progress


def test_a_step_drops_warnings_and_the_message_of_an_unforeseen_error():
    def fail():
        warnings.warn("Ann has 7", stacklevel=1)
        raise ValueError("Ann has 7")

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(CloisterError, match="ValueError") as failure:
            report_progress("train", fail)()
    assert not shown
    assert "Ann" not in str(failure.value)
