"""A certificate as an entry of the registry of deployments of differential privacy, tier 3.

The models restate the registry's schema, as far as an entry made here fills it: keys, what is
required, lists of values. All of an entry is what the certificate says, so it reveals no more.

Source: OpenDP, deployments-registry-data, schemas/deployments-schema.yaml at commit 057e5d8; its
tests of tiers ask for every field of tier 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cloister.errors import InputError
from cloister.figures import figure_above
from cloister.privacy.certificate.certificate import NOT_STATED, Certificate
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.exact import float_above

Text = Annotated[str, StringConstraints(min_length=1)]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]

_REQUIRED = ("curator", "curator_type", "intended_use", "region")
"""Statements without which the registry takes no entry."""


class _Part(BaseModel):
    """A part of an entry; the registry refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Curator(_Part):
    """Who publishes the product."""

    data_curator_name: Text
    data_curator_type: Literal["Government", "Industry", "Nonprofit"]


class Basic(_Part):
    """What was published, by whom, when and what for: tier 1."""

    name: Text
    data_curators: list[Curator] = Field(min_length=1)
    description: Text
    intended_use: Text
    data_product_type: Literal["Synthetic data"]
    data_product_region: Text
    data_product_sector: Sector | None = None
    publication_date: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\d$")]


class Variant(_Part):
    """The definition of privacy."""

    variant_name: Literal["Pure DP", "Approximate DP"]
    data_domain: Text
    unprotected_quantities: Text


class PrivacyParameters(_Part):
    """What the product reveals at most, with the releases whose numbers it uses.

    ``epsilon`` is rounded up to the nearest float; ``delta`` is exact, as text.
    """

    epsilon: float = Field(gt=0)
    delta: Text | None = None


class PrivacyLoss(_Part):
    """Whom the guarantee protects, and how strongly."""

    privacy_unit: Text
    privacy_unit_details: Text
    number_of_privacy_units: int | None = Field(default=None, ge=1)
    privacy_parameters: PrivacyParameters
    privacy_parameters_details: Text


class DeploymentModel(_Part):
    """Who holds the data, who is trusted, and how often is published."""

    model_name: Literal["Central"]
    model_name_details: Text
    trust_assumptions: Text
    actors: Text
    release_type: Literal["One release", "Many releases"]
    release_type_details: Text
    data_source_type: Literal["Static", "Dynamic"]
    data_source_type_details: Text
    access_type: Literal["Non-interactive"]
    access_type_details: Text


class Implementation(_Part):
    """How it was done, and why so: tier 3."""

    preprocessing_and_hyperparameter_tuning: Text
    mechanisms: Text
    composition: Text
    post_processing: Text
    justification: Text
    utility: Text
    additional_information: Text


class Administrative(_Part):
    """What the registry knows of the entry itself."""

    status: Literal["Draft"]
    registry_authors: list[Text] = Field(min_length=1)
    tier: Literal[3]


class Deployment(_Part):
    """All that an entry says of a deployment."""

    basic: Basic
    dp_variant: Variant
    privacy_loss: PrivacyLoss
    deployment_model: DeploymentModel
    implementation: Implementation
    administrative: Administrative


class RegistryEntry(_Part):
    """An entry of the registry; ``url_slug`` makes its address."""

    url_slug: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    deployment: Deployment

    def to_yaml(self) -> str:
        """The text of the entry's file; texts of several lines are blocks, as the registry asks."""
        content = self.model_dump(mode="json", exclude_none=True)
        return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """YAML in which texts of several lines are blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def registry_entry(certificate: Certificate) -> RegistryEntry:
    """The entry of a release, from its certificate alone.

    Raises:
        InputError: the release is not differentially private, or the certificate lacks what the
            registry asks for.
    """
    subject = certificate.subject
    if not certificate.guarantee.private or certificate.weaker_guarantee:
        raise InputError(
            f"release {subject.id} is not differentially private; the registry lists deployments "
            "of differential privacy alone"
        )
    if missing := [name for name in _REQUIRED if _statement(certificate, name) == NOT_STATED]:
        raise InputError(
            f"the certificate of release {subject.id} does not state {', '.join(missing)}, which "
            "the registry requires; write them under about: in the spec of the next release"
        )
    title = f"{subject.dataset} {_statement(certificate, 'curator')} {subject.written[:4]}"
    return RegistryEntry(
        url_slug=re.sub(r"[^a-z0-9]+", "-", f"{title} {subject.id}".lower()).strip("-"),
        deployment=Deployment(
            basic=_basic(certificate),
            dp_variant=_variant(certificate),
            privacy_loss=_privacy_loss(certificate),
            deployment_model=_deployment_model(certificate),
            implementation=_implementation(certificate),
            administrative=Administrative(
                status="Draft", registry_authors=[_statement(certificate, "curator")], tier=3
            ),
        ),
    )


def _statement(certificate: Certificate, name: str) -> str:
    return certificate.about.get(name, NOT_STATED)


def _lines(sentences: Iterable[str]) -> str:
    """Sentences as a list in Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _basic(certificate: Certificate) -> Basic:
    subject, sector = certificate.subject, _statement(certificate, "sector").capitalize()
    content: dict[str, Any] = {
        "name": f"{subject.dataset}, {subject.product} {subject.id}",
        "data_curators": [
            {
                "data_curator_name": _statement(certificate, "curator"),
                "data_curator_type": _statement(certificate, "curator_type").capitalize(),
            }
        ],
        "description": (
            f"A {subject.product} of {subject.rows:,} rows with the declared schema of "
            f"{subject.dataset}. Purpose: {_statement(certificate, 'purpose')}"
        ),
        "intended_use": _statement(certificate, "intended_use"),
        "data_product_type": "Synthetic data",
        "data_product_region": _statement(certificate, "region"),
        "data_product_sector": sector if sector in get_args(Sector) else None,
        "publication_date": subject.written,
    }
    return Basic.model_validate(content)


def _variant(certificate: Certificate) -> Variant:
    return Variant(
        variant_name="Approximate DP" if Fraction(certificate.guarantee.delta) else "Pure DP",
        data_domain="All tables with these attributes:\n"
        + _lines(
            f"`{attribute.name}` ({attribute.type}): "
            f"{', '.join(attribute.values) or attribute.domain}"
            for attribute in certificate.attributes
        ),
        unprotected_quantities=_lines(certificate.unprotected),
    )


def _privacy_loss(certificate: Certificate) -> PrivacyLoss:
    guarantee = certificate.guarantee
    shown = [guarantee, *certificate.reused]
    epsilon, delta = (
        sum((Fraction(getattr(cost, name)) for cost in shown), Fraction(0))
        for name in ("epsilon", "delta")
    )
    return PrivacyLoss(
        privacy_unit=guarantee.unit,
        privacy_unit_details=(
            f"`{guarantee.unit_statement}`. Adjacent are {guarantee.relation_words} "
            f"(`{guarantee.relation}`). Number of rows: {guarantee.rows}."
        ),
        number_of_privacy_units=guarantee.units,
        privacy_parameters=PrivacyParameters(
            epsilon=float_above(epsilon),
            delta=exact_text(delta) if delta else None,
        ),
        privacy_parameters_details=_lines(guarantee.meaning),
    )


def _deployment_model(certificate: Certificate) -> DeploymentModel:
    total, blocks = certificate.cumulative, certificate.subject.blocks
    several = total.releases > 1 or blocks or certificate.reused or total.period != "ever"
    access = _statement(certificate, "access")
    return DeploymentModel(
        model_name="Central",
        model_name_details=certificate.guarantee.definition,
        trust_assumptions=(
            "The curator, and whoever runs and approves releases for it, are trusted with the "
            "data. Recipients are not trusted: the guarantee holds whatever they know, and if all "
            "of them pool what they have."
        ),
        actors=_lines(
            (
                f"Curator, who holds the data: {_statement(certificate, 'curator')}",
                "Those who run and approve releases, and may see exact internal evaluations",
                f"Recipients of the synthetic table: {access}",
            )
        ),
        release_type="Many releases" if several else "One release",
        release_type_details=(
            f"Budget: epsilon {total.cap} at delta {total.cap_delta}, in window {total.window} "
            f"(per {total.period}); {total.releases} charged in it so far, this one included, and "
            f"epsilon {total.left} left. A release that would exceed it is refused."
        ),
        data_source_type="Dynamic" if blocks else "Static",
        data_source_type_details=(
            f"Blocks of growing data that were read: {', '.join(blocks)}."
            if blocks
            else "The data as it was given for this release."
        ),
        access_type="Non-interactive",
        access_type_details=f"Nobody queries the data. Access to the product: {access}",
    )


def _implementation(certificate: Certificate) -> Implementation:
    cost, code = certificate.guarantee.accounted, certificate.software
    named = {
        name: _statement(certificate, name)
        for name in ("preparation", "exploration", "tuning", "why_epsilon", "sector", "contact")
    }
    return Implementation(
        preprocessing_and_hyperparameter_tuning=_lines(
            f"{name.capitalize()}: {named[name]}"
            for name in ("preparation", "exploration", "tuning")
        ),
        mechanisms=_lines(
            (
                *(
                    f"{mechanism.name} ({mechanism.sampler}; {mechanism.source})"
                    for mechanism in certificate.mechanisms
                ),
                *certificate.safeguards,
                f"Cloister {code.cloister}, sources SHA-256 `{code.sources}`",
            )
        ),
        composition=_lines(
            (
                *(f"{stage.name}: {stage.done}" for stage in certificate.stages if stage.event),
                f"All together: epsilon {figure_above(cost.epsilon, 6)} by {cost.accountant}",
                f"Releases of the dataset: {certificate.cumulative.composition}",
            )
        ),
        post_processing=_lines(certificate.post_processing) or "none",
        justification=(
            f"Choice of epsilon: {named['why_epsilon']}\n\nMethod: "
            f"{certificate.subject.method_summary}"
        ),
        utility="Figures that compare the product with the data are exact, so none is published.",
        additional_information=_lines(
            (
                f"Sector: {named['sector']}",
                f"Contact: {named['contact']}",
                *certificate.limitations,
            )
        ),
    )
