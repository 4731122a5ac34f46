"""Diagnostics as people and programs read them.

recipes/resnet50.yaml:9:3: error[unknown-key]: 'max_overhed' is not a key of 'policy.padding'
  9 |   max_overhed: 0.1
    |   ^^^^^^^^^^^ did you mean 'max_overhead'?
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bolt_build.errors import Diagnostic, Mark
from bolt_build.report.printable import printable
from bolt_build.user_files import read_regular

MOST_SHOWN = 100
"""Diagnostics that are shown; whoever mends a hundred has seen what kind of mistake it is."""

_LARGEST_SOURCE = 16 << 20
"""Bytes of a file whose lines are shown."""

_WIDTH = 120
"""Characters of a source line that are shown; a longer one is cut around its mark."""

_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What YAML readers count as the end of a line."""

_COLORS = {"error": "\033[1;31m", "warning": "\033[1;33m", "note": "\033[1;36m"}
_BOLD, _DIM, _RESET = "\033[1m", "\033[2m", "\033[0m"


def render(diagnostics: Sequence[Diagnostic], *, color: bool) -> str:
    """`diagnostics` as text, each ended by a line break, the marked source line beneath where it can be read.

    Of more than `MOST_SHOWN` the first errors are shown, then the first of the others, and at last how many are not.
    """
    lines_of = cache(_lines)
    return "".join(_one(diagnostic, lines_of, color) for diagnostic in _shown(diagnostics))


def as_json(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """`diagnostics` as JSON data: code, severity, message, file, line, column, length, subject, hint. As many as
    `render` shows."""
    return [
        {
            "code": diagnostic.code,
            "severity": diagnostic.severity,
            "message": diagnostic.message,
            "file": diagnostic.mark.file if diagnostic.mark else None,
            "line": diagnostic.mark.line if diagnostic.mark else None,
            "column": diagnostic.mark.column if diagnostic.mark else None,
            "length": diagnostic.mark.length if diagnostic.mark else None,
            "subject": diagnostic.subject,
            "hint": diagnostic.hint,
        }
        for diagnostic in _shown(diagnostics)
    ]


def _shown(diagnostics: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    if len(diagnostics) <= MOST_SHOWN:
        return diagnostics
    errors_first = sorted(range(len(diagnostics)), key=lambda place: diagnostics[place].severity != "error")
    shown = [diagnostics[place] for place in sorted(errors_first[:MOST_SHOWN])]
    left = [diagnostics[place].severity for place in errors_first[MOST_SHOWN:]]
    counts = [f"{left.count(kind)} {kind}{'s' * (left.count(kind) != 1)}" for kind in dict.fromkeys(left)]
    verb = "is" if len(left) == 1 else "are"
    return [*shown, Diagnostic("more", f"{' and '.join(counts)} more {verb} not shown", severity="note")]


def _one(diagnostic: Diagnostic, lines_of: Callable[[str], tuple[str, ...]], color: bool) -> str:
    mark, subject = diagnostic.mark, diagnostic.subject
    if subject is not None and _names(diagnostic.message, subject):
        subject = None
    where = printable(f"{mark.file}:{mark.line}:{mark.column}: " if mark else f"{subject}: " if subject else "")
    about = printable(f"{subject}: ") if mark and subject else ""
    word = _paint(f"{diagnostic.severity}[{diagnostic.code}]", _COLORS.get(diagnostic.severity, ""), color)
    text = f"{_paint(where, _BOLD, color)}{word}: {about}{printable(diagnostic.message)}\n"
    line = _source_line(mark, lines_of(mark.file)) if mark else None
    if mark is None or line is None:
        return text + (f"  hint: {printable(diagnostic.hint)}\n" if diagnostic.hint else "")
    return text + _snippet(mark, line, diagnostic, color)


def _names(message: str, subject: str) -> bool:
    """Whether the message has the subject already. What could be a word of the message counts in quotes alone."""
    around = "'" if subject.isalpha() else ""
    return re.search(rf"(?<!\w){around}{re.escape(subject)}{around}(?!\w)", message) is not None


def _snippet(mark: Mark, line: str, diagnostic: Diagnostic, color: bool) -> str:
    shown, start = _window(line, mark.column - 1)
    length = max(1, min(mark.length, len(shown) - start))
    carets = _columns(shown[start : start + length]) or 1
    blank = "".join("\t" if character == "\t" else " " * _columns(character) for character in shown[:start])
    number = str(mark.line)
    gutter = " " * len(number)
    source = f"  {_paint(f'{number} |', _DIM, color)} {printable(shown)}".rstrip()
    pointer = _paint("^" * carets, _COLORS.get(diagnostic.severity, ""), color)
    hint = f" {printable(diagnostic.hint)}" if diagnostic.hint else ""
    return f"{source}\n  {_paint(f'{gutter} |', _DIM, color)} {blank}{pointer}{hint}\n"


def _window(line: str, start: int) -> tuple[str, int]:
    """A piece of `line` that has `start` in it, and where `start` is in the piece."""
    start = min(start, len(line))
    if len(line) <= _WIDTH:
        return line, start
    first = max(0, min(start - _WIDTH // 3, len(line) - _WIDTH))
    piece = line[first : first + _WIDTH]
    before = "..." if first > 0 else ""
    after = "..." if first + _WIDTH < len(line) else ""
    return before + piece + after, start - first + len(before)


def _source_line(mark: Mark, lines: tuple[str, ...]) -> str | None:
    return lines[mark.line - 1] if 0 < mark.line <= len(lines) else None


def _lines(file: str) -> tuple[str, ...]:
    try:
        text = read_regular(Path(file), _LARGEST_SOURCE).decode("utf-8-sig", "replace")
    except OSError:
        return ()
    return tuple(_LINE_BREAK.split(text))


def _columns(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _paint(text: str, style: str, color: bool) -> str:
    return f"{style}{text}{_RESET}" if color and text and style else text
