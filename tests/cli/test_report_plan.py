"""Plans as people read them."""

from __future__ import annotations

import dataclasses

from tiny_engine import tiny_plan

from bolt_build.families.base import Refusal
from bolt_build.planner.engine_plan import Decision
from bolt_build.report.plan import render


def test_what_a_lock_says_cannot_steer_a_terminal() -> None:
    declined = Decision("tuning", "convert", "declined algorithm=\0\x1b[2J", "net.lock names no such kernel")
    said = render(dataclasses.replace(tiny_plan(), decisions=(declined,)))
    line = "  tuning: convert: declined algorithm=\ufffd\ufffd[2J (net.lock names no such kernel)\n"
    assert said.endswith(f"\n1 decision\n{line}")


def test_what_is_said_of_many_nodes_is_a_line() -> None:
    """In the place of the first, and each once, of whatever problems it is said; the JSON form names all."""
    refusals = [
        Refusal("grouped", f"conv{index}", "is for convolutions with groups") for index in (0, 0, 1, 2, 3, 4, 0)
    ]
    refusals.insert(1, Refusal("cutlass", "pool", "reduce is left to other families"))
    said = render(dataclasses.replace(tiny_plan(), refusals=tuple(refusals)))
    assert said.endswith(
        "\n8 refusals\n"
        "  grouped: conv0, conv1, conv2 and 2 more: is for convolutions with groups\n"
        "  cutlass: pool: reduce is left to other families\n"
    )
