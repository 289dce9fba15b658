"""A certificate shows what was spent and declared, survives a round trip, holds no private fact."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
import yaml

from cloister.errors import PrivacyError, VerificationError
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.certificate.certificate import Certificate
from cloister.privacy.certificate.page import page
from cloister.privacy.certificate.provenance import attribute_origins, domain_words, exact_text
from cloister.privacy.certificate.spend import describe, second_cost
from cloister.privacy.certificate.unit_words import unit_words
from cloister.privacy.certificate.wording import best_guess, meaning, posterior, true_alarms
from cloister.privacy.events import (
    Bounded,
    Composed,
    GaussianCounts,
    LaplaceCounts,
    OnGrid,
    Parallel,
    SampledGaussian,
    Selection,
    Sensitivity,
    Thresholded,
)
from cloister.schema.spec import PersonUnit


def late_imports():
    global Basis, certify, charging, declaring, drawing
    from bases import charging, declaring, drawing

    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.certify import certify


ONE = Sensitivity(1, 1, 1, 1)
GAUSSIAN = GaussianCounts(Fraction(10), ONE)


class Stage:
    part = None

    def __init__(self, event, name="counts", explanation="some counts"):
        self.event, self.name, self.explanation = event, name, explanation


@pytest.fixture(scope="module")
def certificate(basis) -> Certificate:
    return certify(basis)


def test_a_certificate_is_plain_yaml_that_comes_back_and_is_the_same_each_time(basis, certificate):
    text = certificate.to_yaml()
    assert Certificate.from_yaml(text) == certificate
    assert Certificate.from_yaml(text).to_yaml() == certify(basis).to_yaml() == text
    assert Certificate.from_yaml(text.replace("epsilon: '2'", "epsilon: '1'", 1)) != certificate
    assert page(certify(basis)) == page(certificate)
    content = yaml.safe_load(text)
    assert content["guarantee"]["epsilon"] == "2"
    assert content["guarantee"]["delta"] == "1e-5"
    assert content["guarantee"]["relation"] == "add_remove"
    assert content["ledger"]["seq"] == 3
    assert content["subject"]["input"] == "cd" * 32
    assert content["verification"] == "cloister verify r-0123456789"


@pytest.mark.parametrize(
    "damage", ["private: true|private: yes", "subject:|subjekt:", "- |-  ", "unit:|'unit':"]
)
def test_a_text_that_was_not_written_is_refused(certificate: Certificate, damage: str):
    before, after = damage.split("|")
    with pytest.raises(VerificationError, match=r"certificate\.yaml was altered"):
        Certificate.from_yaml(certificate.to_yaml().replace(before, after, 1))


def test_each_stage_is_charged_what_the_accountant_reads_and_another_agrees_to_a_bound(
    basis, certificate: Certificate
):
    spent = {stage.name: stage.epsilon for stage in certificate.stages}
    for stage in basis.plan.stages:
        assert spent[stage.name] == epsilon(stage.event, basis.delta, "add_remove")
    assert spent["sampling"] == spent["sequence and search"] == 0
    first, second = certificate.guarantee.accounted, certificate.guarantee.second
    assert first.epsilon <= 2
    assert second is not None
    assert second.accountant != first.accountant
    assert first.epsilon <= second.epsilon <= 1.5 * first.epsilon


@pytest.mark.parametrize(
    "events",
    [
        [GAUSSIAN, SampledGaussian(Fraction(1, 16), Fraction(2), 50)],
        [LaplaceCounts(Fraction(1, 10), ONE), Selection(Fraction(1, 10))],
        [Thresholded(GAUSSIAN, Fraction(1, 10**7)), Bounded(Fraction(1, 10), Fraction(1, 10**7))],
    ],
)
def test_the_second_reading_is_never_below_the_first(events):
    stages = [Stage(event) for event in events]
    first = epsilon(Composed(tuple((event, 1) for event in events)), 1e-6, "add_remove")
    second = second_cost(stages, Fraction(1, 10**6), "add_remove")
    assert second is not None
    assert second.epsilon >= first


def test_a_second_reading_of_disjoint_parts_is_of_their_worst_path():
    parts = Parallel((Composed(((GAUSSIAN, 3),)), GAUSSIAN))
    delta = Fraction(1, 10**6)
    second = second_cost([Stage(parts)], delta, "add_remove")
    assert second == second_cost([Stage(Composed(((GAUSSIAN, 3),)))], delta, "add_remove")


@pytest.mark.parametrize("promised", ["0.2", "1", "2.3", "7"])
def test_a_bound_in_words_is_not_rounded_below_itself(basis, promised: str):
    """e^0.2 is 1.2214: a factor of at most 1.22 would be more than was shown."""
    said = meaning(basis.spec, Fraction(promised), Fraction(0), secure=True)[0]
    factor = float(re.search(r"at most ([\d.,]+\d)", said)[1].replace(",", ""))
    assert 0 <= factor - math.exp(float(promised)) <= 0.01 * factor
    assert (
        describe(Bounded(Fraction(12341, 100_000))) == "a mechanism shown to be (0.1235, 0)-private"
    )


def test_what_costs_more_than_was_charged_or_violates_a_hard_constraint_is_not_certified(basis):
    with pytest.raises(PrivacyError, match="cost more than the epsilon charged"):
        certify(charging(basis, epsilon=Fraction(1)))
    broken = [replace(report, violations=1, percent=0.01) for report in basis.drawn.violations]
    with pytest.raises(PrivacyError, match="violates the hard constraint town-state"):
        certify(drawing(basis, violations=broken))


@pytest.mark.parametrize("text", ["0.1", "0.3", "0.7", "1.1", "1/3"])
def test_a_pure_epsilon_that_is_no_float_is_certified_to_the_last_digit(basis, text: str):
    whole = Fraction(text)
    plan = replace(basis.plan, stages=[Stage(LaplaceCounts(whole / 7, ONE))] * 7)
    pure = charging(replace(basis, plan=plan), delta=Fraction(0))
    with pytest.raises(PrivacyError, match="cost more"):
        certify(charging(pure, epsilon=whole * (1 - Fraction(1, 10**12))))
    assert certify(charging(pure, epsilon=whole)).guarantee.accounted.epsilon >= whole


def test_constraints_domains_origins_and_the_budget_are_those_of_the_spec_and_the_ledger(
    certificate: Certificate,
):
    rules = {rule.name: rule for rule in certificate.constraints}
    assert (rules["town-state"].hard, rules["town-state"].violations) == (True, 0)
    assert rules["town-state"].rule == "fd: `home town` -> state-code"
    assert not rules["soft-pay"].hard
    assert rules["soft-pay"].rule.startswith("deny: ")
    origins = {attribute.name: attribute for attribute in certificate.attributes}
    assert list(origins) == ["id", "home town", "state-code", "wage <€>", "since"]
    assert origins["home town"].domain == "the values in the file towns.txt"
    assert origins["wage <€>"].domain == "0 to 1000; steps of 10; 20 bins; special: 0"
    assert origins["since"].missing
    assert all(attribute.provenance.startswith("public: ") for attribute in certificate.attributes)
    total = certificate.cumulative
    assert (total.spent, total.left, total.releases) == ("2", "8", 1)
    assert (total.cap, total.cap_delta) == ("10", "0.0001")


def test_a_data_derived_bound_is_called_so(basis):
    derived = basis.spec.attributes["since"].model_copy(
        update={"provenance": "data-derived: least and greatest"}
    )
    declared = declaring(basis, attributes={**basis.spec.attributes, "since": derived})
    assert certify(declared).attributes[-1].provenance.startswith("data-derived: ")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "copied"),
        ({"nullable": True}, "missing in none of the synthetic rows"),
        ({"nullable": True, "missing_share": 0.125}, "missing in 12.5 % of rows, chosen at random"),
    ],
)
def test_how_many_rows_lack_a_key_is_said(basis, keys: dict, said: str):
    key = basis.spec.attributes["id"].model_copy(update=keys)
    declared = declaring(basis, attributes={**basis.spec.attributes, "id": key})
    assert certify(declared).attributes[0].domain.endswith(said)


def filtered(basis, **changed: object):
    """The basis with a budget by whose filter releases are admitted; their sum is 30."""
    windows = (replace(basis.budget.windows[0], admission="filter"),)
    values = {"windows": windows, "spent": Fraction(30), "filtered": Fraction(4)}
    return replace(basis, budget=replace(basis.budget, **(values | changed)))


def test_under_a_filter_the_period_is_within_its_budget(basis):
    certificate = certify(filtered(basis))
    total = certificate.cumulative
    assert "privacy filter" in total.composition and (total.spent, total.filtered) == ("30", "4")
    assert [odds.period for odds in certificate.guarantee.odds] == pytest.approx(
        [posterior(odds.prior, 10) for odds in certificate.guarantee.odds], abs=1e-3
    )
    said = " ".join(page(certificate).split())
    assert "at most ε = 10 at δ = 1e-4, by a privacy filter" in said.replace("0.0001", "1e-4")
    assert "a budget of 4 would do; their epsilons add up to 30" in said
    assert "epsilons add up" not in page(certify(filtered(basis, spent=None)))
    assert Certificate.from_yaml(certificate.to_yaml()) == certificate


def test_of_a_budget_that_was_lowered_the_sum_is_said(basis):
    certificate = certify(filtered(basis, filtered=Fraction(11)))
    assert certificate.cumulative.filtered is None
    assert "sum of the epsilons" in certificate.cumulative.composition
    assert "filtered" not in certificate.to_yaml()
    unbounded = certify(filtered(basis, filtered=None, spent=None))
    assert {odds.period for odds in unbounded.guarantee.odds} == {1.0}


def test_exact_answers_of_the_account_are_told_where_there_are_some(basis):
    assert "exact answer" not in page(certify(basis))
    for refusals, words in ((1, "1 exact answer."), (7, "7 exact answers.")):
        certificate = certify(replace(basis, budget=replace(basis.budget, refusals=refusals)))
        assert sum(each.endswith(words) for each in certificate.limitations) == 1
        assert words in page(certificate)


def test_seeded_noise_stains_everything(basis):
    stained = certify(replace(basis, secure=False))
    assert not stained.guarantee.private
    assert "NOT PRIVATE" in stained.guarantee.meaning[0]
    assert "NOT PRIVATE" in stained.limitations[0]
    assert all("not private" in mechanism.sampler for mechanism in stained.mechanisms)
    assert {odds.release for odds in stained.guarantee.odds} == {1.0}
    assert page(stained).count("NOT PRIVATE") >= 3
    assert "NOT PRIVATE" not in page(certify(basis))


def test_only_kept_promises_are_listed(certificate: Certificate):
    assert [mechanism.name.split()[0] for mechanism in certificate.mechanisms] == [
        "discrete",
        "DP-SGD:",
    ]
    assert any("AES-256" in safeguard for safeguard in certificate.safeguards)
    assert "final before the first query; it was not refunded" in (certificate.safeguards[-1])
    assert any("numbered afresh" in step for step in certificate.post_processing)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (GAUSSIAN, "discrete Gaussian noise of scale 10 rows"),
        (LaplaceCounts(Fraction(1, 2), ONE), "discrete Laplace noise of scale 2 rows"),
        (Thresholded(GAUSSIAN, Fraction(1, 10**6)), "non-empty cells"),
        (Selection(Fraction(1, 2)), "exponential mechanism at epsilon 0.5"),
        (
            SampledGaussian(Fraction(1, 16), Fraction(2), 50),
            "50 steps of DP-SGD on 6.25 % of the rows",
        ),
        (Bounded(Fraction(1, 2), Fraction(1, 10**6)), r"\(0.5, 1e-6\)-private"),
        (Composed(((GAUSSIAN, 3),)), "3 queries, each: discrete Gaussian"),
        (Parallel((GAUSSIAN, GAUSSIAN)), "on disjoint parts of the rows: discrete"),
        (
            OnGrid(GaussianCounts(Fraction(1), Sensitivity.box(2, 640)), 5),
            "one unit moves a number by at most 640 steps",
        ),
    ],
)
def test_every_event_has_words(event, words):
    assert re.search(words, describe(event))


def test_odds_are_those_of_the_theory():
    assert posterior(0.5, math.log(3)) == pytest.approx(0.75)
    assert posterior(0.01, 0) == pytest.approx(0.01)
    assert posterior(0.1, math.inf) == 1
    assert best_guess(math.log(3), 0) == pytest.approx(0.75)
    assert best_guess(0, 0.2) == pytest.approx(0.6)
    assert true_alarms(0.05, math.log(2), 0.01) == pytest.approx(0.11)
    assert true_alarms(0.9, math.log(2), 0) == pytest.approx(0.95)
    assert true_alarms(0.01, math.inf, 0) == 1


def test_no_test_beats_the_bound_on_laplace_noise():
    """The best test of a count with Laplace noise of scale 1 has power e^epsilon times its size."""
    for size in (0.01, 0.05, 0.1):
        threshold = -math.log(2 * size)
        power = (
            0.5 * math.exp(1 - threshold) if threshold > 1 else 1 - 0.5 * math.exp(threshold - 1)
        )
        assert power <= true_alarms(size, 1.0, 0) * (1 + 1e-12)


def test_a_person_is_named_by_key_and_rows_and_its_attributes_are(basis):
    person = PersonUnit(key="person_id", max_rows=5)
    privacy = basis.spec.privacy.model_copy(update={"unit": person})
    words = unit_words(basis.spec.model_copy(update={"privacy": privacy, "name": "visits"}))
    assert words.description == "one person: all rows with the same person_id, at most 5 of them"
    assert words.statement == "unit = rows of visits grouped by person_id; rows per unit <= 5"
    origins = attribute_origins(basis.spec, tuple(basis.spec.attributes)[:2])
    assert origins[0].domain.endswith("; one for each synthetic person")
    assert origins[1].domain.endswith("; one value for all rows of a person")
    assert "person" not in origins[2].domain


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1", "1"),
        ("0.1", "0.1"),
        ("1e-6", "1e-6"),
        ("1/3", "1/3"),
        ("12.5", "12.5"),
        ("1e20", "1e+20"),
    ],
)
def test_amounts_are_exact(amount: str, text: str):
    assert exact_text(Fraction(amount)) == text
    assert Fraction(exact_text(Fraction(amount))) == Fraction(amount)


def test_long_lists_are_cut(basis):
    attribute = basis.spec.attributes["state-code"].model_copy(update={"values": list(range(100))})
    assert domain_words(attribute) == "100 values: 0, 1, 2, 3, 4, 5, 6, 7, ..."


def test_the_page_escapes_every_text_and_loads_nothing(basis):
    text = page(certify(drawing(basis, post_processing=("<script>alert(1)</script>",))))
    assert "&lt;script&gt;" in text
    assert "wage &lt;€&gt;" in text
    for word in ("http:", "https:", "src=", "url(", "@import", "<link", "<script"):
        assert word not in text
    assert "default-src 'none'" in text


def test_a_certificate_of_an_older_version_names_no_model_and_reads_as_before(certificate, basis):
    assert "\nmodel:" not in certificate.to_yaml()
    assert Certificate.from_yaml(certificate.to_yaml()).model is None
    bound = certify(replace(basis, model="ef" * 32))
    assert bound.to_yaml() == certificate.to_yaml() + f"model: {'ef' * 32}\n"
    assert Certificate.from_yaml(bound.to_yaml()) == bound
    assert "ef" * 32 in page(bound)


def test_columns_that_were_left_out_are_told(certificate: Certificate, basis):
    assert "\nignored:" not in certificate.to_yaml()
    assert "left out, neither" not in page(certificate)
    changed = certify(declaring(basis, ignore=("remarks", "<b>")))
    assert yaml.safe_load(changed.to_yaml())["ignored"] == ["remarks", "<b>"]
    assert Certificate.from_yaml(changed.to_yaml()) == changed
    assert "neither read nor released: remarks, &lt;b&gt;." in page(changed)
