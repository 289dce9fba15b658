"""What a certificate says beside its guarantee: statements, origins, what was spent before."""

from dataclasses import replace
from fractions import Fraction

import pytest
import yaml

from cloister.privacy.certificate.certificate import Certificate, Runner
from cloister.privacy.certificate.page import page
from cloister.privacy.certificate.provenance import attribute_origins, constraint_origins
from cloister.privacy.certificate.spend import describe
from cloister.privacy.events import Composed, GaussianCounts, Selection, Sensitivity
from cloister.schema.spec import About


def late_imports():
    global Basis, certify, declaring
    from bases import declaring

    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.certify import certify


ONE = Sensitivity(1, 1, 1, 1)
GAUSSIAN = GaussianCounts(Fraction(10), ONE)


def test_statements_of_the_curator_come_first_and_are_told_where_they_lack(basis):
    """A certificate of an older version states nothing and reads as before."""
    certificate = certify(basis)
    said = yaml.safe_load(certificate.to_yaml())
    assert list(said)[1] == "about"
    assert set(said["about"].values()) == {"not stated in the spec"}
    stated = certify(declaring(basis, about=About(curator="Office", why_epsilon="policy: 7")))
    assert stated.about["curator"] == "Office"
    assert stated.about["why_epsilon"] == "policy: 7"
    assert stated.about["contact"] == "not stated in the spec"
    older = certificate.model_copy(update={"about": {}})
    assert not {"about", "ran_by"} & set(yaml.safe_load(older.to_yaml()))
    for each in (stated, older):
        assert Certificate.from_yaml(each.to_yaml()) == each


@pytest.mark.parametrize(
    ("runner", "fields", "words"),
    [
        (
            Runner(person="Eve", on_behalf_of="a & b"),
            3,
            "Eve, without a role, on behalf of a &amp; b",
        ),
        (Runner(person="Eve", roles=("engineer",)), 2, "Eve, engineer"),
        (Runner(identity="eve"), 3, "eve, who is not registered as a person with roles"),
        (
            Runner(identity="Eve (token 3b83 until 2027-02-25)", person="Eve"),
            3,
            "Eve, without a role",
        ),
    ],
    ids=["behalf", "person", "nobody", "older"],
)
def test_who_had_a_release_run_is_a_name(basis, runner: Runner, fields: int, words: str):
    """A certificate of an earlier version, which holds an identity too, reads as it was written."""
    certificate = certify(replace(basis, ran_by=runner))
    text = certificate.to_yaml()
    assert Certificate.from_yaml(text) == certificate
    assert len(yaml.safe_load(text)["ran_by"]) == fields
    assert f"<dt>Run by</dt><dd>{words}</dd>" in page(certificate)


def test_lists_are_whole_in_the_certificate(basis):
    numbers = [f"A{number}" for number in range(100)]
    listed = basis.spec.attributes["state-code"].model_copy(update={"values": numbers})
    attributes = {**basis.spec.attributes, "state-code": listed}
    origins = {
        origin.name: origin
        for origin in attribute_origins(declaring(basis, attributes=attributes).spec)
    }
    assert origins["state-code"].values == tuple(numbers)
    towns = (basis.spec.folder / "towns.txt").read_text(encoding="utf-8").split("\n")
    assert origins["home town"].values == tuple(town for town in towns if town.strip())
    assert origins["wage <€>"].values == ()


def test_constraints_say_where_they_come_from(basis):
    sources = ["post office, list 7", "data-derived"]
    rules = tuple(
        replace(rule, provenance=source)
        for rule, source in zip(basis.context.task.constraints, sources, strict=False)
    )
    origins = constraint_origins(rules, basis.drawn.violations)
    assert [rule.provenance.partition(";")[0] for rule in origins] == [
        "public: post office, list 7",
        "data-derived: data-derived",
    ]
    assert any("a fact of the data" in fact for fact in certify(basis).unprotected)
    free = certify(declaring(basis, constraints=()))
    assert not any("a fact of the data" in fact for fact in free.unprotected)


def test_what_was_spent_before_is_told(basis):
    assert certify(basis).cumulative.before == "0"
    assert "first charge to this budget" in page(certify(basis))
    later = replace(basis, budget=replace(basis.budget, spent=Fraction(7, 2), releases=3))
    assert certify(later).cumulative.before == "1.5"
    assert "2 earlier charges, of ε = 1.5 in all" in page(certify(later))


def test_queries_of_a_stage_are_counted_by_kind_with_the_least_and_the_most_noise():
    wider, choice = GaussianCounts(Fraction(20), ONE), Selection(Fraction(1, 2))
    assert describe(Composed(((GAUSSIAN, 2), (wider, 1), (choice, 1)))) == (
        "3 queries, each: discrete Gaussian noise of scale 10 to 20 rows on counts; "
        "a choice by the exponential mechanism at epsilon 0.5"
    )
    assert "of scale 10 rows on" in describe(Composed(((GAUSSIAN, 1), (GAUSSIAN, 1))))
