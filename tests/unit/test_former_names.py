"""Names of earlier versions lead to present modules, where nobody else has them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cloister
from cloister import former_names


def said_beside(folder, code):
    """What a program says in a folder of a user, from where only ``cloister`` can be imported."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    if not (site / "cloister").exists():
        (site / "cloister").symlink_to(Path(cloister.__file__).parent)
    words = [sys.executable, "-c", textwrap.dedent(code)]
    settings = os.environ | {"PYTHONPATH": f"{folder}:{site}"}
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_former_names_have_the_names_of_the_present_modules(tmp_path):
    """In a folder of a user: that of this project holds the sources themselves."""
    public = f"""
        import cloister
        from importlib import import_module
        for names in {[*former_names.PRESENT.items()]}:
            former, present = map(import_module, names)
            public = {{name for name in vars(present) if not name.startswith("_")}}
            assert all(getattr(former, name) is getattr(present, name) for name in public)
        print("all of them")
    """
    assert said_beside(tmp_path, public) == "all of them"


def test_a_package_of_somebody_else_is_theirs(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("theirs = 1\n", encoding="utf-8")
    (tmp_path / "flows.py").write_text("theirs = 2\n", encoding="utf-8")
    theirs = "import cloister, models, flows; print(models.theirs + flows.theirs)"
    assert said_beside(tmp_path, theirs) == "3"
    refused = said_beside(tmp_path, "import cloister, models.storage")
    assert refused == "ModuleNotFoundError: No module named 'models.storage'"


def test_no_other_name_is_taken(tmp_path):
    attempts = """
        import cloister
        for name in ("tasks", "models.registry", "flows.cli"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(str(error).startswith("No module named"))
    """
    assert said_beside(tmp_path, attempts).split() == ["True"] * 3
