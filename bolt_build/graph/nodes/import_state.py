"""How far an import has come, to go back to where an attempt fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.ir import Value


@dataclass(frozen=True)
class ImportState:
    """What is known of values and problems by now, and how many nodes were made, met and placed."""

    values: dict[str, Value]
    sequences: dict[str, tuple[str, ...]]
    problems: dict[tuple[str, str, str, str | None], list[str]]
    lost: dict[str, bool]
    nodes: int
    met: int
    placed: int


def state_of(
    builder: GraphBuilder,
    problems: Mapping[tuple[str, str, str, str | None], Sequence[str]],
    lost: Mapping[str, bool],
    met: int,
    placed: int,
) -> ImportState:
    """A copy of all that an import changes."""
    return ImportState(
        {**builder.values},
        {**builder.sequences},
        {key: [*names] for key, names in problems.items()},
        {**lost},
        len(builder.nodes),
        met,
        placed,
    )
