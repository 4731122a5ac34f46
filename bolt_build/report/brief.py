"""Texts with shorter ways to say the same, for tables in a terminal: made with the text, never read out of it.

A file has the whole text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from bolt_build.families.base import Candidate

_TILE = ("m", "n", "k")


class Brief(str):
    """A text that knows shorter forms of itself, from longer to shorter."""

    __slots__ = ("shorter",)

    shorter: tuple[str, ...]

    def __new__(cls, text: str, *shorter: str) -> Brief:
        made = super().__new__(cls, text)
        made.shorter = shorter
        return made

    def __getnewargs__(self) -> tuple[str, *tuple[str, ...]]:  # type: ignore[override]
        return str(self), *self.shorter


def kernel_name(candidate: Candidate) -> Brief:
    """A candidate; `cutlass 128x64x64 pingpong cluster=1x2`, where m, n, k become one word and words need no name; and
    that without the family."""
    values = dict((*candidate.parameters, *candidate.settings))
    tile = _TILE if all(name in values for name in _TILE) else ()
    words = ["x".join(str(values[name]) for name in tile)] if tile else []
    for name, value in values.items():
        if name not in tile:
            words.append(value if isinstance(value, str) and value.isalpha() and len(value) > 2 else f"{name}={value}")
    return Brief(str(candidate), " ".join((candidate.family, *words)), " ".join(words) or candidate.family)


def wrapped(lines: Iterable[str], width: int | None, inset: int | None = None) -> list[str]:
    """Lines of prose, those that are too long broken between words and set in below: by `inset`, or by four more than
    they are themselves. None is no limit."""
    if width is None:
        return list(lines)
    found: list[str] = []
    for line in lines:
        if len(line) <= width:
            found.append(line)
            continue
        blank = " " * (inset if inset is not None else len(line) - len(line.lstrip()) + 4)
        found += textwrap.wrap(line, width, subsequent_indent=blank, break_on_hyphens=False)
    return found
