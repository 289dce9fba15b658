"""Every sentence of a certificate is true of its method: laws for each registered method."""

from dataclasses import replace
from fractions import Fraction

import pytest
from guarantees import suited, suited_spec
from private_table import PrivateTable
from selected import selected

from cloister.constraints.counting import violation_reports
from cloister.models.protocol import fit, make_plan
from cloister.models.registry import METHODS, create
from cloister.models.task import Budget, DatabaseTask, Plan
from cloister.privacy.certificate.certificate import Certificate
from cloister.privacy.door.journal import Journal
from cloister.privacy.events import Composed, SampledGaussian
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource
from cloister.tasks.requests.resolved import PublicContext


def late_imports():
    global certify, drawing
    from bases import drawing

    from cloister.tasks.release.certify import certify


ONE_TABLE = [name for name in sorted(METHODS) if not create(name).of_database]


@pytest.fixture(scope="module", params=selected(ONE_TABLE))
def certified(request, basis, fitted, brief_training, tmp_path_factory):
    """The plan, the model and the certificate of one method on the small world."""
    task, synthesizer = suited(request.param, fitted.task), create(request.param)
    chosen = make_plan(synthesizer, task, Budget(basis.epsilon, basis.delta))
    table = fitted.model.sample(400, SamplingSource(3))
    with Journal.open(tmp_path_factory.mktemp("journal"), {"run": request.param}) as journal:
        noise = NoiseSource.insecure(1)
        private = PrivateTable(table, task.neighbours, chosen.event, journal, noise)
        model = fit(synthesizer, private, task, shortened(chosen))
    spec = suited_spec(request.param, basis.spec)
    own = replace(
        basis,
        context=PublicContext(spec, DatabaseTask.of(spec.name, task)),
        request=basis.request.filled(method=request.param),
        plan=chosen,
        drawn=replace(
            basis.drawn,
            post_processing=model.post_processing(),
            capacity=model.capacity,
            violations=violation_reports(task.constraints, model.sample(500, SamplingSource(1))),
        ),
    )
    return chosen, model, certify(own)


def shortened(chosen: Plan) -> Plan:
    """The plan with a training of few steps, where there is one: what is said of it is the same."""
    if hasattr(chosen.parameters, "steps"):
        return replace(chosen, parameters=replace(chosen.parameters, steps=4))
    return chosen


def sentences(certificate: Certificate) -> str:
    """All that a certificate says of how the release was made."""
    lists = (certificate.post_processing, certificate.safeguards, certificate.guarantee.meaning)
    return "\n".join(sentence for listed in lists for sentence in listed)


def kinds(event) -> set[type]:
    parts = event.parts if isinstance(event, Composed) else ()
    return {kind for part, _ in parts for kind in kinds(part)} or {type(event)}


def test_a_certificate_speaks_of_what_its_method_did_alone(certified):
    chosen, model, certificate = certified
    said = sentences(certificate)
    asked = any(kinds(stage.event) for stage in chosen.stages if stage.name == "soft constraints")
    assert asked or "soft" not in said
    trained = SampledGaussian in kinds(chosen.event)
    assert trained == ("gradient" in said)
    assert trained == any("DP-SGD" in mechanism.name for mechanism in certificate.mechanisms)
    assert ("mixture" in said) == (chosen.method == "mixture")
    assert "views" not in said or chosen.method.startswith("dpview")
    assert "network" not in said or chosen.method.startswith(("kamino", "bayes", "deniability"))
    assert ("towards their mean" in said) == (not chosen.method.endswith("-paper"))
    assert ("Further rows drawn from the model cost nothing" in said) == (model.capacity is None)
    assert type(chosen.parameters).from_json(chosen.parameters.to_json()) == chosen.parameters


def test_a_finite_model_says_how_many_rows_it_gives(basis):
    certificate = certify(drawing(basis, capacity=123))
    said = sentences(certificate)
    assert "at most 123 rows" in said
    assert "any number" not in certificate.stages[-1].purpose
    assert "cost nothing" not in said


@pytest.mark.parametrize("method", [n for n in ONE_TABLE if len(create(n).guarantees) == 1])
def test_more_rows_wanted_cost_nothing_and_change_no_answer(method, fitted):
    budget = Budget(Fraction(2), Fraction(1, 10**5))
    synthesizer = create(method)
    few, many = (
        make_plan(synthesizer, replace(fitted.task, wanted_rows=n), budget) for n in (10, 10**7)
    )
    assert few.stages == many.stages
    assert few.parameters == many.parameters
    assert few.forecast.seconds <= many.forecast.seconds
