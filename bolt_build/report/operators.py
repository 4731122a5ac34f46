"""The operators that can be imported, as a table for people, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from bolt_build.digest import encode
from bolt_build.report.tables import Column, table
from bolt_build.workflows.operators import OperatorSupport, Range

_WHERE = {"cpu": "on CPUs", "cuda": "on GPUs"}


def render(found: Sequence[OperatorSupport], *, width: int | None) -> str:
    """One line an operator."""
    kinds = _kinds(found)
    columns = [
        Column("operator"), Column("opsets"), Column("data"), *(Column(_WHERE.get(kind, kind)) for kind in kinds),
        Column("note", spare=1),
    ]  # fmt: skip
    rows: list[list[str | Text]] = [list(_cells(each)) for each in found]
    return "".join(f"{line.plain.rstrip()}\n" for line in table(columns, rows, width))


def markdown(found: Sequence[OperatorSupport]) -> str:
    """The same as a table of Markdown."""
    titles = ["operator", "opsets", "data", *(_WHERE.get(kind, kind) for kind in _kinds(found)), "note"]
    lines = [titles, ["---"] * len(titles), *(list(_cells(each)) for each in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_json(found: Sequence[OperatorSupport]) -> dict[str, Any]:
    return {"version": 1, "operators": [encode(each) for each in found]}


def _kinds(found: Sequence[OperatorSupport]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind for each in found for kind, _ in each.kernels))


def _cells(each: OperatorSupport) -> tuple[str, ...]:
    data = ", ".join(each.types) or "constants only"
    idle = "a constant" if each.known else "a view" if each.types else ""
    kernels = [", ".join(families) or idle for _, families in each.kernels]
    return (each.name, ", ".join(map(_range, each.opsets)), data, *kernels, each.note)


def _range(opsets: Range) -> str:
    if opsets.first == 0:  # no opset has it
        return "onnxruntime's"
    if opsets.last is None:
        return f"{opsets.first} and newer"
    return str(opsets.first) if opsets.first == opsets.last else f"{opsets.first} to {opsets.last}"
