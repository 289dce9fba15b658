"""The numbers in docs/privacy.md are those of the code."""

import doctest
from pathlib import Path


def test_examples_in_the_privacy_page_hold() -> None:
    page = Path(__file__).parents[3] / "docs" / "privacy.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 20
    assert failed == 0
