"""The verbs, their modules, and which of them a word could have meant."""

from __future__ import annotations

import argparse
import difflib
import importlib
from typing import Protocol, cast

VERBS = (
    "init", "build", "check", "plan", "graph", "explain", "report", "why", "explore", "tune", "verify", "emulate",
    "run", "bench", "diff", "package", "clean", "cache", "operators", "schema", "completion",
    "doctor",
)  # fmt: skip
"""Each is a module of this package; only the one that is asked for is imported."""


class Verb(Protocol):
    """What a verb's module offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def verb_named(name: str) -> Verb:
    """The module of a verb of `VERBS`."""
    return cast("Verb", importlib.import_module(f"bolt_build.cli.{name}"))


def nearest_verb(word: str) -> str | None:
    """The verb that `word` could be a slip of; None where none is near."""
    near = difflib.get_close_matches(word.lower(), VERBS, 1, 0.6)
    return near[0] if near else None
