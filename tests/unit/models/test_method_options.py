"""Options of methods: read by their own models, refused by file, key and remedy, described."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cloister.errors import SpecError
from cloister.flows.cli.app import run
from cloister.models.registry import METHODS, create, methods_with
from cloister.schema.declarations import ReleaseSpec
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import public_context_of, resolve

SPEC = """
name: small
source: {path: data.csv}
privacy:
  unit: row
  relation: add_remove
  rows: {public: 2000}
  budget: {epsilon: 4, delta: 1e-5, per: year}
attributes:
  grade: {type: ordinal, values: [low, middle, high], provenance: form 12}
  age: {type: integer, min: 18, max: 80, bins: 16, provenance: form 12}
release:
  {method: METHOD, epsilon: 2, delta: 0,
   KEY}
"""
PAGE = Path(__file__).parents[3] / "docs" / "spec.md"


def spec_of(folder: Path, method: str, key: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(SPEC.replace("METHOD", method).replace("KEY", key))
    return path


@pytest.mark.parametrize("key", ["options", "dpview"])
@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("dpview", "{view_wide: 3}", "KEY.view_wide: unknown key; did you mean 'view_width'?"),
        ("dpview", "{view_width: 1}", "KEY.view_width: should be greater than or equal to 2"),
        ("dpview", "{linking: x}", "KEY.linking: should be 'priority' or 'matching'; write for"),
        ("deniability", "{resampled: many}", "KEY.resampled: matches no known form"),
        ("independent", "{parts: 4}", "KEY: method 'independent' has no options; leave them out"),
        ("auto", "{k: 4}", "KEY: method 'mixture' has no options; leave them out"),
    ],
)
def test_options_that_a_method_has_not_are_refused_by_file_line_and_key(
    tmp_path: Path, key: str, method: str, options: str, message: str
) -> None:
    path = spec_of(tmp_path, method, f"{key}: {options}")
    with pytest.raises(SpecError) as refused:
        resolve(ReleaseRequest(spec=path))
    said = " ".join(str(refused.value).split())
    assert str(path) in said
    assert "line 14, release." + message.replace("KEY", key) in said


def test_options_reach_the_method_under_either_key_and_the_commands_refuse_others(tmp_path, capsys):
    for key in ("options", "dpview"):
        path = spec_of(tmp_path, "dpview", f"{key}: {{view_width: 2}}")
        task = public_context_of(resolve(ReleaseRequest(spec=path))).task.lead
        assert task.options == {"view_width": 2}
    path = spec_of(tmp_path, "dpview", "options: {view_width: 1}")
    for command in (["spec", "check"], ["plan"]):
        assert run([*command, str(path)]) == 2
        assert "release.options.view_width" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"options": {}, "dpview": {}}, "options and dpview are options of one method"),
        ({"options": 3}, "options should be a mapping of keys"),
        ({"relational": [1]}, "relational should be a mapping of keys"),
    ],
)
def test_options_are_one_mapping(content: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReleaseSpec.model_validate({"epsilon": 1, "delta": 0, **content})


def test_the_page_of_specs_has_every_option_of_every_method() -> None:
    methods: dict[tuple[str, str], list[str]] = {}
    for method in methods_with("options"):
        for name, field in create(method).options.model_fields.items():
            assert field.description, (method, name)
            methods.setdefault((name, field.description), []).append(method)
    page = PAGE.read_text(encoding="utf-8")
    for (name, description), names in methods.items():
        line = f"| `{name}` | {', '.join(f'`{method}`' for method in names)} | {description} |"
        assert line in page, line
    assert len(METHODS) > len(methods_with("options"))
