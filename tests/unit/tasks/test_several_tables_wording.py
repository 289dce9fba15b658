"""What a certificate of several tables says was left out, key by key."""

from tiny_databases import domain

from cloister.privacy.certificate.provenance import key_origins
from cloister.privacy.certificate.unit_words import schema_limits
from cloister.schema.attributes import Integer, TextKey
from cloister.schema.relations import ForeignKey, Schema

KEY = TextKey(type="text", pattern="A{0..9}")
MAYBE = TextKey(type="text", pattern="A{0..9}", nullable=True)
COST = Integer(type="integer", min=0, max=3)
SCHEMA = Schema(
    {
        "persons": domain(id=KEY, x=COST),
        "drugs": domain(id=KEY, x=COST),
        "visits": domain(person=KEY, friend=MAYBE, drug=MAYBE, x=COST),
    },
    (
        ForeignKey("visits", "person", "persons", "id", 2),
        ForeignKey("visits", "friend", "persons", "id", 2, optional=True),
        ForeignKey("visits", "drug", "drugs", "id", 2, optional=True),
    ),
    ("persons",),
)


def test_a_foreign_key_says_what_it_refers_to_and_only_of_protected_rows_that_it_is_bounded():
    """A row that is one of too many of a drug keeps its drug: drugs hold nothing of a person."""
    (origin, *_) = key_origins([(key, 0) for key in SCHEMA.keys])
    assert origin.rule == "foreign key: visits.person refers to persons.id"
    said = {
        column: [sentence for sentence in schema_limits(SCHEMA) if f"visits.{column}" in sentence]
        for column in ("drug", "friend", "person")
    }
    assert said["drug"] == ["A row whose visits.drug leads to no row was kept without its parent."]
    assert any("above the declared number" in sentence for sentence in said["friend"])
    assert any("left out at random" in sentence for sentence in said["person"])


def test_the_unit_is_said_to_be_a_row_with_all_that_refer_and_not_a_row_alone():
    """A person of one row of the units' table has all of its rows protected."""
    (said,) = (sentence for sentence in schema_limits(SCHEMA) if "protected less" in sentence)
    assert said == (
        "The unit is a row of persons with all rows that refer to it: a person who has several "
        "rows of persons is protected less, at k of them by k times epsilon."
    )
    any_table = Schema(SCHEMA.tables, SCHEMA.keys, tuple(SCHEMA.tables))
    assert "several rows of any table is protected less" in schema_limits(any_table)[0]
