"""Tables that fit a terminal: names are abbreviated and the least important columns left out, nothing is wrapped."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len
from rich.text import Text

from bolt_build.report.brief import Brief
from bolt_build.report.printable import printable

LEAST_NAME = 24
"""Characters of a name that stay, whatever the width."""
_GAP = "  "


@dataclass(frozen=True)
class Column:
    """`spare`: columns with higher numbers are left out first where the width does not suffice, equal ones together,
    those with 0 never.

    `name`: cells may be abbreviated, to the first of their shorter forms that fits, where they are `Brief`.
    """

    title: str
    right: bool = False
    spare: int = 0
    name: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], width: int | None) -> tuple[Text, ...]:
    """The header in bold and a line a row, at most `width` characters wide where that can be; None is no limit."""
    cells = [[cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row] for row in rows]
    widths = _widths(columns, cells)
    kept = list(range(len(columns)))
    while width is not None and _least(columns, widths, kept) > width and any(columns[i].spare for i in kept):
        most = max(columns[i].spare for i in kept)
        kept = [i for i in kept if columns[i].spare != most]
    if width is not None:
        _shrink(columns, widths, kept, width)
        fitted = [
            _fitted([row[i] for row in cells], [row[i] for row in rows], column, widths[i])
            for i, column in enumerate(columns)
        ]
        cells = [list(row) for row in zip(*fitted, strict=True)]
        widths = _widths(columns, cells)
    header = [Text(column.title, "bold") for column in columns]
    return tuple(_line(columns, widths, kept, row) for row in (header, *cells))


def terminal_width(stream: IO[str]) -> int | None:
    """Characters in a line of the terminal that `stream` goes to; None for a file or a pipe."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def shortened(name: str, width: int) -> str:
    """`name` in at most `width` characters: words lose their ends, numbers stay, for layers differ in these; where even
    that is too long, the middle is left out."""
    if len(name) <= width:
        return name
    shorter = (re.sub(rf"([^\W\d_]{{{letters}}})[^\W\d_]+", r"\1", name) for letters in range(12, 2, -1))
    for short in shorter:
        if len(short) <= width:
            return short
    head = (width - 1) // 3
    return f"{name[:head]}\N{HORIZONTAL ELLIPSIS}{name[len(name) - (width - 1 - head) :]}"


def byte_text(count: int) -> str:
    """A number of bytes with its unit, in powers of 1000."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[Text]]) -> list[int]:
    return [max([cell_len(c.title), *(row[i].cell_len for row in cells)]) for i, c in enumerate(columns)]


def _fitted(cells: Sequence[Text], given: Sequence[str | Text], column: Column, width: int) -> list[Text]:
    """A column's cells, made from what was given: in one form where one fits all of them; otherwise each in the longest
    that fits it."""
    if not column.name or all(cell.cell_len <= width for cell in cells):
        return list(cells)
    forms = [
        (cell.plain, *(map(printable, text.shorter) if isinstance(text, Brief) else ()))
        for cell, text in zip(cells, given, strict=True)
    ]
    for level in range(1, min(map(len, forms))):
        if all(cell_len(each[level]) <= width for each in forms):
            return [Text(each[level], cell.style) for each, cell in zip(forms, cells, strict=True)]
    found = [next((form for form in each if cell_len(form) <= width), None) for each in forms]
    return [
        Text(shortened(each[-1], width) if fits is None else fits, cell.style)
        for fits, each, cell in zip(found, forms, cells, strict=True)
    ]


def _least(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int]) -> int:
    """The width of a line with every name as short as it may be."""
    needed = (min(widths[i], LEAST_NAME) if columns[i].name else widths[i] for i in kept)
    return sum(needed) + len(_GAP) * (len(kept) - 1)


def _shrink(columns: Sequence[Column], widths: list[int], kept: Sequence[int], width: int) -> None:
    """Take what is too much from the widest names."""
    names = [i for i in kept if columns[i].name]
    excess = sum(widths[i] for i in kept) + len(_GAP) * (len(kept) - 1) - width
    while excess > 0 and names:
        widest = max(names, key=lambda i: widths[i])
        if widths[widest] <= LEAST_NAME:
            return
        widths[widest] -= 1
        excess -= 1


def _line(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], row: Sequence[Text]) -> Text:
    line = Text()
    for position, i in enumerate(kept):
        cell = row[i]
        blank = " " * (widths[i] - cell.cell_len)
        line.append(_GAP if position else "")
        line.append_text(Text(blank) + cell if columns[i].right else cell + Text(blank))
    line.rstrip()
    return line
