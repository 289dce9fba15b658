"""Laws of rules with offsets, and on dates beside moments: released tables break none by values."""

import itertools

import numpy as np
import pandas as pd
import pytest
from declared_table import domain_of
from examples import examples, few
from hypothesis import given, settings
from hypothesis import strategies as st
from shape import Shape, release_rows
from specs import listed, spec_of

from cloister.constraints import bind, parse_denial, require_consistent, smallest_conflict
from cloister.constraints.counting import count_violations
from cloister.errors import ConstraintError, SampleError
from cloister.models.task import table_task
from cloister.schema.attributes import Date, Datetime, Integer
from cloister.schema.domain import Table

ROWS = 400
WAYS = {"born": "date", "joined": "date", "seen": "datetime", "left": "datetime"}
OFFSETS = {
    "date": ["", " + 3 days", " - 1 month", " + 2 years", " - 40 days"],
    "number": ["", " + 7", " - 2.5", " - 11"],
}
NUMBERS = ("count", "price")


def columns(rng: np.random.Generator) -> dict[str, dict]:
    """Columns of all kinds that rules compare, each of which may be missing."""
    day = {"type": "date", "min": "2000-01-31", "max": "2004-02-29"}
    moment = {"type": "datetime", "min": "2000-02-29T00:00:00", "max": "2006-12-31T23:00:00"}
    attributes = {
        "born": day,
        "joined": day | {"max": "2009-12-31"},
        "seen": moment | {"step": 3_600},
        "left": moment | {"step": 3_600},
        "count": {"type": "integer", "min": 0, "max": 60, "special": [-1]},
        "price": {"type": "float", "min": 0, "max": 40, "decimals": 2},
        "kind": listed("a", "b", "c"),
    }
    nullable = rng.random(len(attributes)) < 0.4
    return {
        name: attribute | {"nullable": bool(gone)} | {"provenance": "form"}
        for (name, attribute), gone in zip(attributes.items(), nullable, strict=True)
    }


def cell(rng: np.random.Generator, name: str, row: str = "t") -> str:
    """A cell with an offset, or the day of a moment."""
    offset = rng.choice(OFFSETS["number" if name in NUMBERS else "date"])
    day = "day of " if WAYS.get(name) == "datetime" and rng.random() < 0.3 else ""
    return f"{day}{row}.{name}{offset}"


def rule(rng: np.random.Generator, *pairs: tuple[str, ...]) -> str:
    """A rule on one row or, one in four, on two."""
    first, second = rng.permutation(pairs[rng.integers(len(pairs))])
    op, more = rng.choice(["<", "<=", ">", ">="]), " and t.kind = 'a'"
    if rng.random() < 0.25:
        return f"{cell(rng, first, 't1')} {op} {cell(rng, second, 't2')} and t1.kind != t2.kind"
    text = f"{cell(rng, first)} {op} {cell(rng, second)}"
    return text + more if rng.random() < 0.3 else text


def random_shape(seed: int) -> Shape:
    """A table of random values, whatever its rules, of which it has one to three."""
    rng = np.random.default_rng(seed)
    attributes, times = columns(rng), rng.permutation([*WAYS])[: rng.integers(2, 4)]
    pairs = [NUMBERS, *itertools.combinations(times, 2)]
    rules = [{"deny": rule(rng, *pairs)} for _ in range(rng.integers(1, 4))]
    compared = {name for name in attributes if any(name in each["deny"] for each in rules)}
    declared = {name: attributes[name] for name in attributes if name in {*compared, "kind"}}
    return Shape(pd.DataFrame(), spec_of("offsets", ROWS, declared, rules))


CASES = [
    *few(itertools.product(["mixture"], range(40)), 4),
    *few(itertools.product(["kamino"], range(20)), 1),
]


@pytest.mark.parametrize(("method", "seed"), CASES)
def test_released_rows_keep_rules_with_offsets(method, seed, brief_training) -> None:
    task = table_task(random_shape(seed).declared(), ROWS)
    require_consistent(task.constraints, task.domain, ROWS)
    rng = np.random.default_rng(seed)
    codes = {column.name: rng.integers(0, column.size, ROWS) for column in task.domain}
    try:
        trial = release_rows(Table(task.domain, codes), task, 5, method)
    except SampleError as refusal:  # rules that leave no row, of which few are known before
        assert "constraint_" in str(refusal)
        return
    assert trial.synthetic.rows == ROWS
    assert [count_violations(each, trial.synthetic) for each in task.hard] == [0] * len(task.hard)


TINY = domain_of(
    born=Date(type="date", min="2000-02-27", max="2000-03-02", nullable=True),
    joined=Date(type="date", min="2000-03-28", max="2000-04-02"),
    seen=Datetime(
        type="datetime", min="2000-03-26T00:00:00", max="2000-04-02T00:00:00", step=43_200
    ),
    count=Integer(type="integer", min=-3, max=3),
    even=Integer(type="integer", min=-4, max=10, step=2, special=[99]),
)
PAIRS = [("born", "joined"), ("born", "seen"), ("joined", "seen"), ("count", "even")]


@st.composite
def tiny_rules(draw: st.DrawFn) -> list[str]:
    """Rules on one or two pairs of columns, which often contradict each other."""
    pairs = draw(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=2, unique=True))

    def tiny_cell(name: str) -> str:
        if name in ("count", "even"):
            return f"t.{name}" + draw(st.sampled_from(["", " + 1", " - 2", " + 2.5", " - 90"]))
        day = "day of " if name == "seen" and draw(st.integers(0, 3)) == 0 else ""
        offsets = ["", " + 1 month", " + 30 days", " - 1 month", " + 1 day", " - 28 days"]
        return f"{day}t.{name}" + draw(st.sampled_from(offsets))

    rules = []
    for _ in range(draw(st.integers(1, 3))):
        first, second = draw(st.permutations(draw(st.sampled_from(pairs))))
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "!="]))
        rules.append(f"{tiny_cell(first)} {op} {tiny_cell(second)}")
    return rules


@settings(max_examples=examples(600))
@given(tiny_rules())
def test_a_reported_contradiction_under_offsets_is_real(texts: list[str]) -> None:
    rules = [parse_denial(text, f"c{index}") for index, text in enumerate(texts)]
    names = list(dict.fromkeys(name for rule in rules for name in rule.attributes))
    joint = np.indices([TINY[name].size for name in names]).reshape(len(names), -1)
    rows = Table(TINY, dict(zip(names, joint, strict=True)))
    allowed = {rule.name: ~bind(rule, TINY).violation_mask(rows, rows) for rule in rules}
    conflict = smallest_conflict(rules, TINY)
    if conflict:
        assert not np.all([allowed[name] for name in conflict], axis=0).any()
    elif len(rules) == 1:
        assert allowed["c0"].any()


@pytest.mark.parametrize(
    "texts",
    [
        ("t.joined + 1 month > t.seen",),
        ("t.seen >= t.joined - 10 days",),
        ("t.count + 3 > t.even", "t.count < t.even - 2"),
        ("t.joined > t.seen + 3 days", "t.joined < t.seen + 4 days"),
    ],
)
def test_contradictions_under_offsets_are_reported_before_anything_is_spent(texts) -> None:
    rules = [parse_denial(text, f"c{index}") for index, text in enumerate(texts)]
    with pytest.raises(ConstraintError, match="can satisfy this"):
        require_consistent(rules, TINY, 10)
