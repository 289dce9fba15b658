"""Questionnaires: answers of all kinds that a few traits of a person decide, some asked of some.

Rules that say who is asked what come in blocks: all answers of a block are missing, or none is.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd
from shape import Shape
from specs import listed, spec_of, whole

GROUP = 6
"""Questions that one trait decides."""
OPTIONS = 5


def questionnaire(rows: int = 5_000, questions: int = 60, seed: int = 1) -> Shape:
    """Answers of the kinds yes or no, one of five, whole number, and amount, in turn."""
    rng = np.random.default_rng(seed)
    answers: dict[str, np.ndarray] = {}
    attributes: dict[str, dict[str, object]] = {}
    for number in range(questions):
        if number % GROUP == 0:
            trait = rng.random(rows)
        level = (trait + rng.random(rows)) / 2
        name, kind = f"q{number:02d}", number % 4
        values = (
            np.where(level < 1 / 2, "no", "yes"),
            np.array([f"option {option}" for option in range(OPTIONS)])[
                (level * OPTIONS).astype(int)
            ],
            (level * 100).astype(int),
            np.round(-50 * np.log1p(-level), 1),
        )
        answers[name] = values[kind]
        attributes[name] = _DECLARED[kind]
    spec = spec_of("questionnaire", rows, attributes, method="mixture", delta="1e-7")
    return Shape(pd.DataFrame(answers), spec)


def one_block(rows: int = 2_000, questions: int = 20, seed: int = 1) -> Shape:
    """Questions that the employed alone are asked."""
    rng = np.random.default_rng(seed)
    work = rng.choice(["full", "part", "retired", "student", "seeking"], rows)
    asked, trait = np.isin(work, ["full", "part"]), rng.random(rows)
    form = _Form({"work": work}, {"work": listed("full", "part", "retired", "student", "seeking")})
    for number in range(questions):
        yes = rng.random(rows) < 0.2 + 0.6 * trait * (number % 3) / 2
        form.ask(f"q{number:02d}", yes, asked, "t.work = 'full' or t.work = 'part'")
    return form.shape("one_block", rows)


def blocks_in_a_block(rows: int = 3_000, blocks: int = 3, seed: int = 1) -> Shape:
    """A question of whether further ones are asked, some of which ask that again."""
    rng = np.random.default_rng(seed)
    trait, works = rng.normal(size=rows), rng.random(rows) < 0.6
    form = _Form({"works": np.where(works, "yes", "no")}, {"works": listed("yes", "no")})
    for block in range(blocks):
        more = trait + rng.normal(size=rows) > 0.5 * block - 0.8
        form.ask(f"b{block}", more, works, "t.works = 'yes'")
        for number in range(4):
            yes = trait + rng.normal(size=rows) > 0
            form.ask(f"b{block}q{number}", yes, works & more, f"t.b{block} = 'yes'")
    return form.shape("blocks_in_a_block", rows)


def many_blocks(rows: int = 1_600, blocks: int = 9, columns: int = 30, seed: int = 1) -> Shape:
    """A wide survey: traits that all have, and filters with four questions each."""
    rng = np.random.default_rng(seed)
    trait, form = rng.normal(size=rows), _Form({}, {})
    everyone = np.ones(rows, dtype=bool)
    for number in range(columns):
        form.ask(f"c{number:02d}", trait + rng.normal(size=rows) > rng.normal(), everyone)
    for block in range(blocks):
        asked = trait + rng.normal(size=rows) > rng.normal()
        form.ask(f"f{block}", asked, everyone)
        for number in range(4):
            yes = trait + rng.normal(size=rows) > rng.normal()
            form.ask(f"f{block}q{number}", yes, asked, f"t.f{block} = 'yes'")
    return form.shape("many_blocks", rows)


def boxes(rows: int = 3_000, options: int = 6, seed: int = 1) -> Shape:
    """Boxes of which one is ticked, and answers that depend on which."""
    rng = np.random.default_rng(seed)
    ticked = rng.choice(options, rows, p=np.arange(options, 0, -1) / (options * (options + 1) / 2))
    names, form = [f"box{option}" for option in range(options)], _Form({}, {})
    for option, name in enumerate(names):
        form.answers[name] = np.where(ticked == option, "yes", "no")
        form.attributes[name] = listed("no", "yes")
    for number in range(5):
        yes = rng.normal(size=rows) + (ticked == number) > 0.3
        form.ask(f"q{number}", yes, np.ones(rows, dtype=bool))
    form.rules.append(" and ".join(f"t.{name} = 'no'" for name in names))
    form.rules += [f"t.{a} = 'yes' and t.{b} = 'yes'" for a, b in combinations(names, 2)]
    return form.shape("boxes", rows)


@dataclass
class _Form:
    """The answers to a questionnaire, their columns, and what no row may be."""

    answers: dict[str, np.ndarray]
    attributes: dict[str, dict[str, object]]
    checks: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)

    def ask(
        self, name: str, yes: np.ndarray, asked: np.ndarray, condition: str | None = None
    ) -> None:
        """A question that some are asked, exactly if the condition holds."""
        self.answers[name] = np.where(asked, np.where(yes, "yes", "no"), None)
        self.attributes[name] = listed("no", "yes")
        if condition:
            self.attributes[name] = {**self.attributes[name], "nullable": True}
            self.checks.append(f"t.{name} is not missing exactly if {condition}")

    def shape(self, name: str, rows: int) -> Shape:
        """The shape with all rules."""
        constraints = [{"check": check} for check in self.checks]
        constraints += [{"deny": rule} for rule in self.rules]
        spec = spec_of(name, rows, self.attributes, constraints, method="mixture", delta="1e-7")
        return Shape(pd.DataFrame(self.answers), spec)


_DECLARED: tuple[dict[str, object], ...] = (
    listed("no", "yes"),
    listed(*(f"option {option}" for option in range(OPTIONS))),
    whole(0, 99),
    {"type": "float", "min": 0, "max": 2000, "decimals": 1, "provenance": "the form"},
)
