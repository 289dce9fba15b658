"""Workers that compute at once and in this process, in place of Dask's."""

from collections.abc import Iterator
from contextlib import ExitStack

from cloister.tasks.data.workers import Workers


class InPlace(Workers):
    """What workers do; what they hold is here."""

    def __init__(self) -> None:
        self.closing = ExitStack()

    def map(self, function, *arguments) -> Iterator:
        return map(function, *arguments)

    def hold(self, function, *arguments) -> list:
        return list(map(function, *arguments))

    def total(self, kernel, items):
        return sum(map(kernel, items))
