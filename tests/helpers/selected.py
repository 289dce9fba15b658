"""Which methods the laws of all methods are tried on: a few, and those whose code changed.

All of them run in the slow suite; in the default one where a file of ``models/`` that is no
method's, or of ``cloister/privacy``, changed too.
"""

import subprocess
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cloister.models.registry import METHODS

ROOT = Path(__file__).parents[2]
ALWAYS = {"mixture", "kamino", "copula-paper", "relational-mixture"}
"""Those with most code of their own, a printed one, and one of several tables."""

SESSION = 4 * 3600
"""Seconds before the last commit of a branch, whose commits are its change where it is the main."""


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    return done.stdout.strip()


@cache
def changed() -> frozenset[str]:
    """Paths that the branch, or a checkout's uncommitted files, have changed; none without git."""
    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    if base in ("", head):
        before = int(git("show", "-s", "--format=%ct", "HEAD") or 0) - SESSION
        base = git("rev-list", "-1", f"--before={before}", "HEAD")
    return frozenset(git("diff", "--name-only", base).split()) if base else frozenset()


@cache
def folder_of(method: str) -> str:
    """The folder of a method's code."""
    module: str = METHODS[method].module  # type: ignore[attr-defined]
    return "/".join(module.removeprefix("cloister.").split(".")[:2]) + "/"


def is_changed(method: str) -> bool:
    """Whether code of a method changed, or code that methods share."""
    folders = {folder_of(name) for name in METHODS}
    shared = any(
        path.startswith(("cloister/privacy/", "models/")) and not path.startswith(tuple(folders))
        for path in changed()
    )
    return any(path.startswith(folder_of(method)) for path in changed()) or shared


def marks_of(method: str, always: Collection[str] = ALWAYS) -> list[Any]:
    """The marks of a law's case: slow for a method that was not selected."""
    return [] if method in always or is_changed(method) else [pytest.mark.slow]


def selected(
    methods: Iterable[str], *, always: Collection[str] = ALWAYS, slow: Collection[str] = ()
) -> list[Any]:
    """Parameters of a law; methods that were not selected are slow, like those that train long."""
    return [
        pytest.param(name, marks=pytest.mark.slow if name in slow else marks_of(name, always))
        for name in methods
    ]
