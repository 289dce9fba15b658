"""The entry of a release in the registry of deployments is valid there, and says no more."""

from dataclasses import replace

import jsonschema
import pytest
import yaml

from cloister.errors import InputError
from cloister.privacy.certificate.registry import RegistryEntry, registry_entry
from cloister.schema.spec import About


def late_imports():
    global Basis, certify, declaring
    from bases import declaring

    from cloister.tasks.release.basis import Basis
    from cloister.tasks.release.certify import certify


ABOUT = About(
    curator="Registry Office",
    curator_type="nonprofit",
    intended_use="Tests\nand: teaching",
    region="Glenmoor",
    sector="healthcare",
)

TEXTS = {
    "basic": "name description intended_use data_product_region",
    "dp_variant": "data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters_details",
    "deployment_model": (
        "model_name_details trust_assumptions actors release_type_details "
        "data_source_type_details access_type_details"
    ),
    "implementation": (
        "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing "
        "justification utility additional_information"
    ),
    "administrative": "",
}
"""Texts that an entry of tier 3 has, by the registry's schema at commit 057e5d8."""

CHOICES = {
    "basic.data_product_type": (
        "Summary statistics",
        "Machine learning model",
        "Dataset",
        "Synthetic data",
        "Interactive API",
        "SQL queries",
    ),
    "basic.data_product_sector": (
        *("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    ),
    "dp_variant.variant_name": (
        *("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
    ),
    "deployment_model.model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"),
    "deployment_model.release_type": ("One release", "Many releases"),
    "deployment_model.data_source_type": ("Static", "Dynamic"),
    "deployment_model.access_type": ("Interactive", "Non-interactive"),
    "administrative.status": (
        *("Converted", "Draft", "Pending", "Changes Required", "Approved"),
        *("Approved (Update Requested)", "Approved (Pending)"),
    ),
    "administrative.tier": (1, 2, 3),
}
OPTIONAL = {"basic.data_product_sector", "privacy_loss.number_of_privacy_units"}
OTHERS = {
    "basic.data_curators": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["data_curator_name", "data_curator_type"],
            "properties": {
                "data_curator_name": {"type": "string"},
                "data_curator_type": {"enum": ["Government", "Industry", "Nonprofit"]},
            },
        },
    },
    "basic.publication_date": {"type": "string", "format": "date"},
    "privacy_loss.number_of_privacy_units": {"type": "integer"},
    "privacy_loss.privacy_parameters": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "epsilon": {"type": "number"},
            "delta": {"type": ["number", "string"]},
            "rho": {"type": "number"},
        },
    },
    "administrative.registry_authors": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string"},
    },
}


def _section(name: str, texts: str) -> dict:
    fields = {f"{name}.{text}": {"type": "string", "minLength": 1} for text in texts.split()}
    fields |= {key: {"enum": list(values)} for key, values in CHOICES.items()} | OTHERS
    section = {key: value for key, value in fields.items() if key.startswith(f"{name}.")}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [key.partition(".")[2] for key in section if key not in OPTIONAL],
        "properties": {key.partition(".")[2]: value for key, value in section.items()},
    }


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url_slug", "deployment"],
    "properties": {
        "url_slug": {"type": "string"},
        "deployment": {
            "type": "object",
            "additionalProperties": False,
            "required": list(TEXTS),
            "properties": {name: _section(name, texts) for name, texts in TEXTS.items()},
        },
    },
}
"""What the registry asks of an entry of tier 3, restated."""

CHECKS = jsonschema.Draft7Validator.FORMAT_CHECKER


def entry_of(basis, about: About = ABOUT) -> dict:
    text = registry_entry(certify(declaring(basis, about=about))).to_yaml()
    styles = {token.style for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)}
    assert styles <= {None, "|", '"', "'"}  # the registry refuses folded texts
    return yaml.safe_load(text)


def test_an_entry_is_valid_in_the_registry(basis):
    entry = entry_of(basis)
    jsonschema.Draft7Validator(SCHEMA, format_checker=CHECKS).validate(entry)
    assert RegistryEntry.model_validate(entry).model_dump(exclude_none=True) == entry
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 2.0, "delta": "1e-5"}
    assert loss["number_of_privacy_units"] == basis.spec.privacy.rows.public
    basic = entry["deployment"]["basic"]
    assert (basic["data_product_sector"], basic["publication_date"]) == ("Healthcare", "2026-11-21")
    assert basic["intended_use"] == "Tests\nand: teaching"


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: entry["deployment"].pop("implementation"),
        lambda entry: entry["deployment"]["administrative"].update(tier=4),
        lambda entry: entry["deployment"]["basic"].update(author="x"),
        lambda entry: entry["deployment"]["dp_variant"].update(variant_name="DP"),
    ],
)
def test_what_the_registry_refuses_is_refused_here(basis, damage):
    entry = entry_of(basis)
    damage(entry)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(entry, SCHEMA)
    with pytest.raises(ValueError, match="validation error"):
        RegistryEntry.model_validate(entry)


def test_an_entry_says_in_words_what_the_registry_does_not_know_and_what_was_left_out(basis):
    entry = entry_of(basis, ABOUT.model_copy(update={"sector": "sea fishing"}))["deployment"]
    assert "data_product_sector" not in entry["basic"]
    said = entry["implementation"]
    assert "Sector: sea fishing" in said["additional_information"]
    assert "not stated in the spec" in said["preprocessing_and_hyperparameter_tuning"]
    assert "not stated in the spec" in said["justification"]


def test_without_what_the_registry_requires_or_privacy_there_is_no_entry(basis):
    for name in ("curator", "curator_type", "intended_use", "region"):
        about = ABOUT.model_copy(update={name: None})
        with pytest.raises(InputError, match=f"does not state {name}, which the registry requires"):
            registry_entry(certify(declaring(basis, about=about)))
    with pytest.raises(InputError, match="is not differentially private"):
        registry_entry(certify(replace(declaring(basis, about=ABOUT), secure=False)))
