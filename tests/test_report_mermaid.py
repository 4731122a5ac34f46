"""Plans and graphs as Mermaid flowcharts."""

from __future__ import annotations

import dataclasses
import re

from tiny_engine import tiny_plan

from bolt_build.graph.text import parse_graph
from bolt_build.report.mermaid import graph_chart, plan_chart

GRAPH = """\
graph tiny batch=1 (%data: f32[1,3,8,8]) -> (%"out put") {
  const %w: f32[4,3,3,3]
  %y: f32[1,4,6,6] = conv(%data, %w)  // "/conv1"
  %z: f32[1,4,6,6] = relu(%y)  // "/a\\"b<br>#1;"
  %"out put": f32[1,4,6,6] = add(%y, %z) | clip beta=6.0  // "/add"
}
"""


CHART = """\
flowchart TD
  subgraph g0["tiny for host"]
    g0i0(["data<br/>f32[1,3,8,8]"])
    g0n0["/conv1<br/>conv"]
    g0i0 -->|"1x3x8x8"| g0n0
    g0n1["/a#34;b#60;br#62;#35;1;<br/>relu"]
    g0n0 -->|"1x4x6x6"| g0n1
    g0n2["/add<br/>add+clip"]
    g0n0 -->|"1x4x6x6"| g0n2
    g0n1 -->|"1x4x6x6"| g0n2
    g0o0(["out put"])
    g0n2 --> g0o0
  end
"""


def test_a_graph() -> None:
    """An arrow a tensor; constants are left out; what names hold is text."""
    assert graph_chart([("tiny for host", parse_graph(GRAPH))]) == CHART


def test_a_plan_has_every_step_with_its_kernel_and_its_familys_color() -> None:
    plan = tiny_plan()
    text = plan_chart([plan, dataclasses.replace(plan, target="other")])
    lines = text.splitlines()
    steps = [(number, batch, step) for number in (0, 1) for batch in plan.plans for step in batch.steps]
    assert sum(" subgraph " in line for line in lines) == 2 * len(plan.plans) == lines.count("  end")
    colors = dict(re.findall(r"classDef (\w+) fill:(#\w+)", text))
    for number, batch, step in steps:
        name = f"p{number}b{batch.batch}s{step.index}"
        (box,) = [line for line in lines if line.startswith(f'    {name}["')]
        assert f"{step.name}<br/>" in box
        assert box.endswith(f'<br/>{"view" if step.view else step.candidate}"]')
        (color,) = re.findall(rf"^  class {name} (\w+)$", text, re.MULTILINE)
        assert color in colors
    assert len(set(colors.values())) == len(colors)
    reached = set(re.findall(r"--> ?(?:\|[^|]*\| )?(\w+)$", text, re.MULTILINE))
    assert {f"p{n}b{batch.batch}o{i}" for n in (0, 1) for batch in plan.plans for i in range(len(batch.outputs))} <= (
        reached
    )
