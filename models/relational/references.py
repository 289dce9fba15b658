"""Which references put rows in families, which are chosen afterwards, and which rules on them hold.

Public inputs only. A row is in the family of one row that it names, or in none if it must name two
rows of units. What it names otherwise is chosen when it is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cloister.constraints import DenialConstraint, functional_dependency, key_attributes
from cloister.constraints.across import AcrossConstraint
from cloister.errors import PlanError
from cloister.figures import count_of
from cloister.models.task import DatabaseTask, Task
from cloister.models.transforms.unit_tables import under_fresh_keys
from cloister.schema import relations
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain
from cloister.schema.relations import ForeignKey, Schema


def unit_key(task: DatabaseTask, table: str) -> ForeignKey | None:
    """The reference of a table by which its rows are in a family; None if they are in none.

    Of those to rows of units the one that is never missing, else the first. Rows that must name two
    go with either: a table of units would change in each row that loses one, and with it the noise,
    so that single rows, joined with both, say more.
    """
    required = task.schema.keys_to_units(table)
    if required:
        return required[0] if len(required) == 1 else None
    apart = (key for key in _optional_to_units(task.schema, table) if _may_be_apart(task, key))
    return next(apart, None)


def _may_be_apart(task: DatabaseTask, key: ForeignKey) -> bool:
    """Whether rows that lack a reference can be drawn without the others of a table.

    They have attributes, and no rule is on one of them and another row.
    """
    domain = relations.rows_domain(task.schema, key.table)
    rules = under_fresh_keys(task.tables[key.table].hard, domain)
    alone = all(rule.arity == 1 or key.column in rule.attributes for rule in rules)
    protected = key.table in task.schema.holding and not key.to_itself
    return protected and alone and len(domain.modelled) > 1


def _optional_to_units(schema: Schema, table: str) -> Iterator[ForeignKey]:
    keys = schema.parents_of(table)
    return (key for key in keys if key.optional and key.parent in schema.holding)


def other_keys(task: DatabaseTask, table: str) -> tuple[ForeignKey, ...]:
    """The references of a table whose rows are joined to its own: they stay if these do."""
    apart = (unit_key(task, table), *loose_keys(task, table))
    return tuple(key for key in task.schema.parents_of(table) if key not in apart)


def loose_keys(task: DatabaseTask, table: str) -> tuple[ForeignKey, ...]:
    """The references of a table to rows that may go, while its own rows stay."""
    chosen = unit_key(task, table)
    itself = (key for key in task.schema.parents_of(table) if key.to_itself)
    keys = dict.fromkeys((*_optional_to_units(task.schema, table), *itself))
    return tuple(key for key in keys if key != chosen)


def keys_with_degrees(task: DatabaseTask) -> list[ForeignKey]:
    """The references of which it is counted how many rows name the same one."""
    tables = task.schema.tables
    return [k for name in tables for k in (*other_keys(task, name), *loose_keys(task, name))]


def keys_to_families(task: DatabaseTask) -> list[ForeignKey]:
    """The references by which rows are in families, of which some lack it."""
    keys = (unit_key(task, name) for name in task.schema.tables)
    return [key for key in keys if key is not None and key.optional]


def distinct_pairs(task: DatabaseTask) -> Mapping[str, tuple[str, ...]]:
    """The pair of references that is a key, by table; PlanError if one has two of them."""
    pairs: dict[str, tuple[str, ...]] = {}
    for name, table in task.tables.items():
        for rule in table.hard:
            pair = key_attributes(rule) or ()
            if len(pair) != 2 or not set(pair) <= _required(task, name):
                continue
            if pairs.setdefault(name, pair) != pair:
                raise PlanError(
                    f"table '{name}' has two keys of two references; one is kept at most, so make "
                    f"'{rule.name}' soft, or drop it"
                )
    return pairs


def require_kept(task: DatabaseTask) -> None:
    """Check that references can be drawn such that rules on them hold, and rows follow orders.

    PlanError names the rule or the reference.
    """
    distinct_pairs(task)
    for key in task.schema.keys:
        in_family = unit_key(task, key.table) == key
        if key.order and (key.optional or not in_family):
            raise PlanError(
                f"table '{key.table}', column '{key.column}': rows have an order only where each "
                "must refer to one row of a unit; leave order out"
            )
        if not in_family:
            _require_placeable(task, key)
    for name, table in task.tables.items():
        references = {key.column for key in task.schema.parents_of(name)}
        for rule in table.hard:
            if references.intersection(rule.attributes) and not _is_kept(task, name, rule):
                raise PlanError(
                    f"constraint '{rule.name}' is on a column that refers to another table, and "
                    "rows are drawn before it is known; make it soft, or drop it (a key of one "
                    "reference is kept with max_rows: 1, one of two references that are never "
                    "missing is kept too)"
                )


def _is_kept(task: DatabaseTask, name: str, rule: DenialConstraint) -> bool:
    """Whether rows keep a hard constraint on their references.

    One on two rows of a family is kept by it, a key of one reference bounds degrees by one, and a
    key of two, or a dependency on one, decides what rows are chosen to refer to.
    """
    keys = task.schema.parents_of(name)
    used = [key for key in keys if key.column in rule.attributes]
    columns = key_attributes(rule) or ()
    if used == [unit_key(task, name)] and rule.arity == 2:
        return True
    if len(columns) == 1:
        return not used[0].optional and used[0].max_rows == 1
    pair = len(columns) == 2 and set(columns) <= _required(task, name)
    return pair or any(agreed_column(task, key, rule) for key in keys)


def _required(task: DatabaseTask, name: str) -> set[str]:
    return {key.column for key in task.schema.required_of(name)}


@dataclass(frozen=True)
class KeyRules:
    """Constraints across one key: ``rules`` on a row and its parent, ``shared`` columns of rows.

    Rows of one parent agree on shared columns.
    """

    rules: tuple[AcrossConstraint, ...]
    shared: tuple[str, ...]

    @classmethod
    def of(cls, task: DatabaseTask, key: ForeignKey) -> KeyRules:
        """Those of a key."""
        hard = task.tables[key.table].hard
        shared = (agreed_column(task, key, rule) for rule in hard)
        across = tuple(rule for rule in task.across if rule.key == key)
        return cls(across, tuple(name for name in shared if name))

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return (*(rule.name for rule in self.rules), *self.shared)


def agreed_column(task: DatabaseTask, key: ForeignKey, rule: DenialConstraint) -> str | None:
    """The column on which rows of one parent agree, if a rule is a dependency on that key alone."""
    dependency = functional_dependency(rule)
    if dependency is None or tuple(dependency[0]) != (key.column,):
        return None
    return dependency[1] if dependency[1] in task.schema.tables[key.table].modelled else None


def _require_placeable(task: DatabaseTask, key: ForeignKey) -> None:
    names = KeyRules.of(task, key).names
    if names and key.table == task.schema.lead and not key.optional:
        raise PlanError(
            f"constraint '{names[0]}' is across a reference of '{key.table}', whose number of rows "
            "is that of the privacy unit: a row that fits no other could not be left out; drop the "
            "constraint"
        )
    pair = distinct_pairs(task).get(key.table, ())
    if names and key.column in pair:
        raise PlanError(
            f"constraint '{names[0]}' is across '{key.table}.{key.column}', which is part of the "
            f"key ({', '.join(pair)}) of '{key.table}', and rows cannot be placed by both: drop "
            f"'{names[0]}', or drop the key if rows may repeat it"
        )


def most_drawn(task: DatabaseTask, table: Task) -> int:
    """The most rows drawn for a table: as many per unit as were declared."""
    return -(-table.data_rows * task.output_rows // task.data_rows)


def require_enough_keys(name: str, domain: Domain, wanted: int) -> None:
    """Check that the patterns of a table have as many keys as rows are wanted; PlanError."""
    for column in domain:
        if isinstance(column, Serial) and column.values < wanted:
            raise PlanError(
                f"table '{name}', column '{column.name}': its pattern has "
                f"{count_of(column.values, 'key')} for up to {count_of(wanted, 'row')}; widen the "
                f"pattern or request fewer rows"
            )
