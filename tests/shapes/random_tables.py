"""Random small tables with random rules that they satisfy: dependencies, orders, rows, keys."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole


class TableMaker:
    """Columns and rules, added one after the other; every rule holds by construction."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.rows = int(np.exp(rng.uniform(np.log(60), np.log(2_000))))
        self.frame: dict[str, np.ndarray] = {}
        self.attributes: dict[str, dict] = {}
        self.rules: list[dict] = []

    def listed(self, numbers: np.ndarray, size: int) -> str:
        name = self._name("c")
        values = [f"{name}v{number}" for number in range(size)]
        self.frame[name] = np.array(values, dtype=object)[numbers]
        self.attributes[name] = listed(*values)
        return name

    def number(self, values: np.ndarray, widen: int) -> str:
        name = self._name("n")
        low, high = int(values.min()) - widen * int(self.rng.integers(0, 2)), int(values.max())
        self.frame[name] = values
        self.attributes[name] = whole(low, high + widen)
        return name

    def codes(self, name: str) -> np.ndarray:
        return pd.factorize(self.frame[name])[0]

    def old(self, kind: str) -> str:
        names = [name for name in self.attributes if name.startswith(kind)]
        if not names:
            (self.base_listed if kind == "c" else self.base_number)()
            return self.old(kind)
        return str(self.rng.choice(names))

    def rule(self, form: str, text: str) -> None:
        self.rules.append({"name": f"rule{len(self.rules)}", form: text})

    def base_listed(self) -> None:
        size = int(np.exp(self.rng.uniform(0.7, 4.5)))
        shares = self.rng.gamma(0.7, size=size) + 1e-3
        self.listed(self.rng.choice(size, self.rows, p=shares / shares.sum()), size)

    def base_number(self) -> None:
        spread = np.exp(self.rng.uniform(0.5, 8))
        values = np.rint(self.rng.gamma(1.0, spread, self.rows)).astype(int)
        values[self.rng.random(self.rows) < self.rng.choice([0, 0.6])] = 0
        self.number(values, int(spread * self.rng.choice([0, 1, 5])))

    def function(self) -> None:
        left = self.old("cn"[int(self.rng.random() < 0.25)])
        self.rule("fd", f"{left} -> {self._image(self.codes(left))}")

    def function_of_two(self) -> None:
        first, second = self.old("c"), self.old("c")
        if first != second:
            joint = self.codes(first) * 10_000 + self.codes(second)
            self.rule("fd", f"{first}, {second} -> {self._image(pd.factorize(joint)[0])}")

    def diamond(self) -> None:
        top = self.old("c")
        middle = [self._image(self.codes(top)) for _ in range(2)]
        bottom = self.listed(self.rng.integers(0, 2, 5_000)[self.codes(top)], 2)
        for name in middle:
            joint = pd.factorize(self.codes(name) * 2 + self.codes(bottom))[0]
            side = self.listed(joint, int(joint.max()) + 1)
            self.rule("fd", f"{top} -> {side}")
            self.rule("fd", f"{side} -> {bottom}")

    def renaming(self) -> None:
        left = self.old("c")
        codes = self.codes(left)
        name = self.listed(self.rng.permutation(int(codes.max()) + 1)[codes], int(codes.max()) + 1)
        self.rule("fd", f"{left} -> {name}")
        self.rule("fd", f"{name} -> {left}")

    def rising(self) -> None:
        first = self.old("n")
        steps = np.sort(self.rng.integers(0, 60, 8))
        cuts = np.quantile(self.frame[first], np.linspace(0.1, 0.9, 7))
        second = self.number(steps[np.searchsorted(cuts, self.frame[first])], 3)
        self.rule("deny", f"t1.{first} > t2.{first} and t1.{second} < t2.{second}")

    def rising_in_groups(self) -> None:
        first, group = self.old("n"), self.old("c")
        slopes = self.rng.integers(0, 4, 2_000)[self.codes(group)]
        second = self.number(self.frame[first] // 5 * slopes, 3)
        rising = f"t1.{first} > t2.{first} and t1.{second} < t2.{second}"
        self.rule("deny", f"t1.{group} = t2.{group} and {rising}")

    def later(self) -> None:
        first = self.old("n")
        second = self.number(self.frame[first] + self.rng.poisson(5, self.rows), 5)
        self.rule("deny", f"t.{first} > t.{second}")

    def threshold(self) -> None:
        number, name = self.old("n"), self.old("c")
        value = self.frame[name][int(self.rng.integers(0, self.rows))]
        most = int(self.frame[number][self.frame[name] == value].max())
        self.rule("deny", f"t.{name} = '{value}' and t.{number} > {most}")

    def key(self) -> None:
        group = self.old("c")
        ranks = pd.Series(self.codes(group)).groupby(self.codes(group)).cumcount().to_numpy()
        name = self.number(ranks, 50)
        self.rules.append({"name": f"rule{len(self.rules)}", "key": [group, name]})

    def empty_some(self) -> None:
        name = str(self.rng.choice(list(self.attributes)))
        gone = self.rng.random(self.rows) < 0.1
        self.frame[name] = np.where(gone, None, self.frame[name].astype(object))
        self.attributes[name]["nullable"] = True

    def _image(self, codes: np.ndarray) -> str:
        size = int(self.rng.integers(1, codes.max() + 2))
        image = self.rng.integers(0, size, codes.max() + 1)[codes]
        if self.rng.random() < 0.3:
            return self.number(image * int(self.rng.integers(1, 40)), 4)
        return self.listed(image, size)

    def _name(self, kind: str) -> str:
        return f"{kind}{len(self.attributes)}"


def random_table(seed: int) -> Shape:
    """A table of 60 to 2,000 rows and 2 to about 14 columns, with at most a dozen rules."""
    rng = np.random.default_rng(seed)
    maker = TableMaker(rng)
    steps: list[Callable[[], None]] = [
        maker.function, maker.function_of_two, maker.diamond, maker.renaming, maker.rising,
        maker.rising_in_groups, maker.later, maker.threshold, maker.key, maker.function,
    ]  # fmt: skip
    for _ in range(int(rng.integers(1, 4))):
        maker.base_listed()
        maker.base_number()
    for _ in range(int(rng.integers(0, 6))):
        steps[int(rng.integers(len(steps)))]()
    for _ in range(int(rng.choice([0, 0, 1, 3]))):
        maker.empty_some()
    spec = spec_of("random", maker.rows, maker.attributes, maker.rules)
    return Shape(pd.DataFrame(maker.frame), spec)
