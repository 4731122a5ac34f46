"""HTML pages that need nothing but themselves: no script, no picture, no style from elsewhere."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.user_files import shell_word


@dataclass(frozen=True)
class Cell:
    """`mark` is a class of the styles: "bad", "good" or "dim"; `bar` fills so much of the cell (0 to 1). `color` stands
    before the text as a square, and `link` names a place in the page."""

    text: str
    mark: str = ""
    bar: float | None = None
    color: str = ""
    link: str = ""


@dataclass(frozen=True)
class PageTable:
    """`right` are indices of columns with numbers, `long` of those whose text may be broken between lines. A caption
    says what the table is, to those who only hear it."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: tuple[int, ...] = ()
    long: tuple[int, ...] = ()


def page_table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], right: Sequence[int] = (),
    long: Sequence[int] = (),
) -> PageTable:  # fmt: skip
    cells = tuple(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows)
    return PageTable(caption, tuple(columns), cells, tuple(right), tuple(long))


def rendered(template: str, **context: Any) -> str:
    """The page that a template of this package makes; what it is given is escaped."""
    return _environment().get_template(template).render(**context)


def check_place(path: Path) -> None:
    """Raises BoltError where a page could not be written there: better before a build than after it."""
    parent = Path(os.path.abspath(path)).parent
    if path.is_dir():
        message, hint = "is a directory", "name a file in it"
    elif not parent.is_dir():
        message, hint = "its directory does not exist", f"make it with: mkdir -p {shell_word(parent)}"
    else:
        return
    raise BoltError([Diagnostic("no-place", message, subject=str(path), hint=hint)], ExitCode.USAGE)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bolt_build.report", "templates"), undefined=jinja2.StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
