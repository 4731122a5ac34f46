"""Diagnostics and exit codes: the only way in which a stage says that its input is wrong.

A stage collects every `Diagnostic` it can find and raises one `BoltError` with all of them; the CLI renders
them (`bolt_build.report.diagnostics`) and exits with the error's code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

UPGRADE = "update the checkout that bolt-build was installed from, and install it again"
"""The hint where a later bolt-build wrote a file."""


class ExitCode(IntEnum):
    """Exit codes of every `bolt-build` verb. `docs/commands.md` says when; never renumbered."""

    OK = 0
    USAGE = 2
    INVALID = 3
    TASK_FAILED = 4
    VERIFY_FAILED = 5
    LOCK = 6
    TOOL_MISSING = 7
    REGRESSION = 8
    INTERNAL = 70
    INTERRUPTED = 130


@dataclass(frozen=True)
class Mark:
    """Where something stands in a text file. Line and column count from 1; `length` characters take carets."""

    file: str
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong, where, and what to do about it.

    `code` is a stable kebab-case word ("unknown-key"), `subject` what it is about when no source line can be
    shown (an ONNX file, a node), `hint` the action that mends it.
    """

    code: str
    message: str
    mark: Mark | None = None
    hint: str | None = None
    subject: str | None = None
    severity: str = "error"


class BoltError(Exception):
    """Carries every diagnostic of a failed stage and the exit code they amount to."""

    def __init__(self, diagnostics: Iterable[Diagnostic], exit_code: ExitCode = ExitCode.INVALID) -> None:
        self.diagnostics = tuple(diagnostics)
        self.exit_code = exit_code
        super().__init__("; ".join(d.message for d in self.diagnostics))
