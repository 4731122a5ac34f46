"""Plans as people read them."""

from __future__ import annotations

import dataclasses

from tiny_engine import tiny_plan

from bolt_build.planner.engine_plan import Decision
from bolt_build.report.plan import render


def test_what_a_lock_says_cannot_steer_a_terminal() -> None:
    declined = Decision("tuning", "convert", "declined algorithm=\0\x1b[2J", "net.lock names no such kernel")
    said = render(dataclasses.replace(tiny_plan(), decisions=(declined,)))
    line = "  tuning: convert: declined algorithm=\ufffd\ufffd[2J (net.lock names no such kernel)\n"
    assert said.endswith(f"\n1 decisions\n{line}")
