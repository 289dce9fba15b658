"""Forecasts of whole releases: from public facts, and more for more work."""

from pathlib import Path

import pytest
import yaml

from tasks.requests.forecast import forecast_of
from tasks.requests.plan import plan_of
from tasks.requests.resolved import Options, ResolvedRequest, public_context_of


@pytest.fixture
def needed(tmp_path):
    """The forecast for so many rows and attributes."""

    def of(rows, attributes, method="mixture", evaluate="quick"):
        content = {
            "name": "sized",
            "source": {"path": "absent.csv"},
            "privacy": {
                "unit": "row",
                "relation": "add_remove",
                "rows": {"public": rows},
                "budget": {"epsilon": 9, "delta": "1e-8", "per": "year"},
            },
            "attributes": {
                f"a{at}": {"type": "integer", "min": 0, "max": 30, "provenance": "form 1"}
                for at in range(attributes)
            },
            "release": {"method": method, "epsilon": 4, "delta": "1e-9"},
        }
        spec = Path(tmp_path / "sized.yaml")
        spec.write_text(yaml.safe_dump(content))
        request = ResolvedRequest.of(spec, Options(evaluate=evaluate), "a person")
        return forecast_of(request, public_context_of(request), plan_of(request))

    return of


@pytest.mark.parametrize("method", ["mixture", "kamino", "dpview", "independent"])
def test_more_rows_and_attributes_need_more(needed, method):
    small, long, wide = (
        needed(rows, attributes, method)
        for rows, attributes in ((10_000, 5), (1_000_000, 5), (10_000, 20))
    )
    assert small.seconds < min(long.seconds, wide.seconds)
    assert small.memory <= min(long.memory, wide.memory)
    assert small.seconds < 60


def test_an_evaluation_is_part_of_what_is_needed(needed):
    seconds = [needed(100_000, 8, evaluate=level).seconds for level in ("none", "quick", "full")]
    assert seconds == sorted(set(seconds))
