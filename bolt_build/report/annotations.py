"""What is wrong, at its line, in the forms that CI services show beside a change.

GitHub reads "workflow commands" from a job's output; GitLab a Code Quality report, a JSON file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import Diagnostic
from bolt_build.report.printable import printable
from bolt_build.workflows.outcome import Outcome, RecipeOutcome

_GITHUB = {"error": "error", "warning": "warning"}
_GITLAB = {"error": "critical", "warning": "minor"}


@dataclass(frozen=True)
class Annotation:
    """`file` is relative to the current directory where it lies in it; `line` and `column` count from 1."""

    severity: str
    code: str
    text: str
    file: str
    line: int = 1
    column: int | None = None


def annotations_of(outcome: Outcome) -> tuple[Annotation, ...]:
    """One for each diagnostic, failed task and departing engine, each at its line or at its recipe's first."""
    found = [_of(each, None) for each in outcome.diagnostics]
    for recipe in outcome.recipes:
        found += [_of(each, recipe) for each in recipe.diagnostics]
        found += _departures(recipe)
        found += [
            Annotation(
                "error",
                "task-failed",
                f"{recipe.recipe}/{event.target}: {event.label}: {event.text}",
                _file(recipe.file),
            )
            for event in recipe.failed
        ]
    return tuple(dict.fromkeys(found))


def github_commands(outcome: Outcome) -> str:
    """Lines for a job's output. A path is relative to the directory in which the command ran, which is to be the
    repository's root."""
    return "".join(f"{_command(each)}\n" for each in annotations_of(outcome))


def code_quality(outcome: Outcome) -> str:
    """GitLab's Code Quality report."""
    data = [
        {
            "description": each.text, "check_name": f"bolt-build {each.code}",
            "fingerprint": hashlib.sha256("\0".join((each.code, each.file, each.text)).encode()).hexdigest(),
            "severity": _GITLAB.get(each.severity, "info"),
            "location": {"path": each.file, "lines": {"begin": each.line}},
        }
        for each in annotations_of(outcome)
    ]  # fmt: skip
    return json.dumps(data, indent=1) + "\n"


def _departures(recipe: RecipeOutcome) -> Iterator[Annotation]:
    for engine in recipe.engines:
        for each in engine.verification.problems if engine.verification is not None else ():
            text = f"{recipe.recipe}/{engine.target}: {each.message}"
            yield Annotation(each.severity, each.code, _with_hint(text, each), _file(recipe.file))


def _of(each: Diagnostic, recipe: RecipeOutcome | None) -> Annotation:
    text = _with_hint(each.message, each)
    if each.mark is not None and Path(each.mark.file).is_file():
        return Annotation(each.severity, each.code, text, _file(each.mark.file), each.mark.line, each.mark.column)
    about = f"{each.subject}: " if each.subject and each.subject not in each.message else ""
    if each.subject is not None and Path(each.subject).is_file():
        return Annotation(each.severity, each.code, text, _file(each.subject))
    return Annotation(each.severity, each.code, about + text, "" if recipe is None else _file(recipe.file))


def _with_hint(text: str, each: Diagnostic) -> str:
    return printable(f"{text}\nhint: {each.hint}" if each.hint else text)


def _file(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _command(each: Annotation) -> str:
    place = [("file", each.file), ("line", str(each.line))] if each.file else []
    place += [("col", str(each.column))] if each.column is not None else []
    place.append(("title", f"bolt-build: {each.code}"))
    words = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in place)
    return f"::{_GITHUB.get(each.severity, 'notice')} {words}::{_escaped(each.text)}"


def _escaped(text: str, also: str = "") -> str:
    """As GitHub's runner undoes it."""
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{also}" else c for c in text)
