"""Random small tables of persons with several rows, with random rules that they satisfy."""

import numpy as np
import pandas as pd
from random_tables import TableMaker
from shape import Shape
from specs import spec_of


class _Maker(TableMaker):
    """Columns of rows and of persons; rules on all rows, and on those of one person."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        people = max(self.rows // int(rng.integers(2, 12)), 2)
        self.owner = np.sort(rng.integers(0, people, self.rows))
        self.frame["person"] = np.array(
            [f"P{number + 1:05}" for number in self.owner], dtype=object
        )
        self.attributes["person"] = {"type": "text", "pattern": "P{00001..99999}"}

    def of_person(self) -> None:
        rows, self.rows = self.rows, int(self.owner.max()) + 1
        known = set(self.frame)
        (self.base_listed, self.base_number)[int(self.rng.integers(2))]()
        self.rows = rows
        (name,) = set(self.frame) - known
        self.frame[name] = self.frame[name][self.owner]
        if self.rng.random() < 0.5:
            self.attributes[name]["per"] = "person"
        else:
            self.rule("fd", f"person -> {name}")

    def once(self) -> None:
        visits = pd.Series(self.owner).groupby(self.owner).cumcount().to_numpy()
        name = self.number(visits, int(self.rng.choice([0, 2, 40])))
        self.rules.append({"name": f"rule{len(self.rules)}", "key": ["person", name]})

    def function_within(self) -> None:
        left = self.old("c")
        joint = pd.factorize(self.owner * 10_000 + self.codes(left))[0]
        self.rule("fd", f"person, {left} -> {self._image(joint)}")

    def rising_within(self) -> None:
        first = self.old("n")
        slopes = self.rng.integers(0, 3, int(self.owner.max()) + 1)[self.owner]
        second = self.number(np.asarray(self.frame[first]) // 4 * slopes, 3)
        rising = f"t1.{first} > t2.{first} and t1.{second} < t2.{second}"
        self.rule("deny", f"t1.person = t2.person and {rising}")


def random_persons(seed: int) -> Shape:
    """A table of 60 to 2,000 rows of 2 to 12 rows a person on average."""
    rng = np.random.default_rng(seed)
    maker = _Maker(rng)
    for step in (maker.base_listed, maker.base_number, maker.of_person):
        for _ in range(int(rng.integers(0, 3))):
            step()
    steps = [
        maker.function, maker.function_of_two, maker.rising, maker.later, maker.threshold,
        maker.once, maker.function_within, maker.rising_within, maker.of_person,
    ]  # fmt: skip
    for _ in range(int(rng.integers(1, 5))):
        steps[int(rng.integers(len(steps)))]()
    if rng.random() < 0.3 and len(maker.frame) > 1:
        name = str(rng.choice([name for name in maker.attributes if name != "person"]))
        gone = (rng.random(maker.owner.max() + 1) < 0.1)[maker.owner]
        maker.frame[name] = np.where(gone, None, maker.frame[name].astype(object))
        maker.attributes[name]["nullable"] = True
    return Shape(pd.DataFrame(maker.frame), _spec(maker, rng))


def _spec(maker: _Maker, rng: np.random.Generator) -> dict:
    people = len(set(maker.owner.tolist()))
    declared = {"persons": {"public": people}} if rng.random() < 0.7 else {}
    unit = {"key": "person", "max_rows": int(rng.integers(2, 15)), **declared}
    return spec_of("persons", maker.rows, maker.attributes, maker.rules, unit=unit)
