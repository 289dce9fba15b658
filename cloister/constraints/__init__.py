"""Denial constraints: their text forms, binding to a domain, and contradictions."""

from cloister.constraints.binding import (
    BoundConstraint,
    BoundPredicate,
    Operand,
    bind,
    holds,
    presence_rules,
)
from cloister.constraints.consistency import (
    holds_for_equal_rows,
    key_capacity,
    require_consistent,
    smallest_conflict,
)
from cloister.constraints.declared import constraints_of, declaration_of
from cloister.constraints.denial import (
    Cell,
    Constant,
    DenialConstraint,
    KnownFigure,
    Op,
    Predicate,
)
from cloister.constraints.holoclean import format_holoclean, parse_holoclean, read_holoclean
from cloister.constraints.shapes import OrderRule, functional_dependency, key_attributes, order_rule
from cloister.constraints.text import (
    dependency,
    format_denial,
    format_dependency,
    key,
    parse_check,
    parse_denial,
    parse_dependency,
)
from cloister.schema.declarations.constraints import ConstraintDeclaration

__all__ = [
    "BoundConstraint",
    "BoundPredicate",
    "Cell",
    "Constant",
    "ConstraintDeclaration",
    "DenialConstraint",
    "KnownFigure",
    "Op",
    "Operand",
    "OrderRule",
    "Predicate",
    "bind",
    "constraints_of",
    "declaration_of",
    "dependency",
    "format_denial",
    "format_dependency",
    "format_holoclean",
    "functional_dependency",
    "holds",
    "holds_for_equal_rows",
    "key",
    "key_attributes",
    "key_capacity",
    "order_rule",
    "parse_check",
    "parse_denial",
    "parse_dependency",
    "parse_holoclean",
    "presence_rules",
    "read_holoclean",
    "require_consistent",
    "smallest_conflict",
]
