"""What a linking of records has come to."""

from cloister.arrays import Integers


def count_matches(left: Integers, right: Integers, taken: Integers) -> int:
    """How many records were linked to one of equal parts."""
    return int((left == right[taken]).all(1).sum())
