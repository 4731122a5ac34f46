"""What is wrong with one ONNX file, gathered while it is read, and the files that were read for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic

SHOWN = 8
"""Names that a message lists; the others are counted."""

LONGEST = 400
"""Characters of a file's name that a message shows."""


@dataclass
class Findings:
    """Diagnostics about the ONNX file `path`, each once, and all files read, the ONNX file first."""

    path: Path
    files: list[Path] = field(default_factory=list)
    _diagnostics: dict[Diagnostic, None] = field(default_factory=dict)

    def report(self, code: str, message: str, hint: str | None = None) -> None:
        self._diagnostics[Diagnostic(code, message, hint=hint, subject=str(self.path))] = None

    def fail(self, code: str, message: str, hint: str | None = None) -> BoltError:
        """The error with all that was found and this."""
        self.report(code, message, hint)
        return BoltError(self._diagnostics)

    def check(self) -> None:
        """Raises BoltError where anything was reported."""
        if self._diagnostics:
            raise BoltError(self._diagnostics)


def listed(names: list[str]) -> str:
    """Names in quotes, the first `SHOWN` of them."""
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def clipped(text: str) -> str:
    """`text`, its middle left out where it is longer than any name that was meant."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}[...]{text[-LONGEST // 2 :]}"
