"""Attention that a test spells out, as statements over inputs and constants that they name."""

from __future__ import annotations

from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.text import format_graph
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.pipeline import optimize

CONSTANTS = {
    "weight": "f32[12,12] #", "learned": "f32[5,4] #",
    "root": "f32[] {0.5}", "half": "f32[] {0.5}", "eight": "f32[] {8}", "least": "f32[] {-3e38}",
    "none": "f32[] {-inf}", "zero": "f32[] {0}", "two": "i64[] {2}", "one": "i64[] {1}", "nought": "i64[] {0}",
    "bias": "f32[1,3,5,5]", "each": "f32[3,1,1]", "window": "f32[2,5,5]", "seen": "bool[5,5]",
}  # fmt: skip
"""What statements may read beside the inputs."""

INPUTS = {
    "x": "f32[2,5,36]", "q": "f32[2,5,12]", "k": "f32[2,5,12]", "v": "f32[2,5,12]", "cross": "f32[2,7,12]",
    "mask": "f32[2,1,1,5]", "late": "f32[5,2,36]", "pad": "f32[2,1,1,7]",
    "planes": "f32[2,36,5]", "one.head": "f32[2,5,4]", "other": "f32[2,5,4]",
}  # fmt: skip


def spelled(text: str, output: str = "y") -> Graph:
    """Statements, one a line or separated by semicolons, as a graph of the inputs and constants that they name."""
    lines = [line.strip() for line in text.replace("\n", ";").split(";") if line.strip()]
    read = [word.strip("%,;()") for line in lines for word in line.split("=", 1)[1].replace("(", " ").split()]
    named = dict.fromkeys(read)
    own = {line.split()[0][1:] for line in lines}
    inputs = ", ".join(f"%{name}: {INPUTS[name]}" for name in named if name in INPUTS and name not in own)
    made = [f'{line} // "{line.split()[0][1:]}"' for line in lines]
    constants = [f"const %{name}: {CONSTANTS[name]}" for name in named if name in CONSTANTS]
    return graph("\n".join([f"graph g batch=2 ({inputs}) -> (%{output}) {{", *constants, *made, "}"]))


def heads(name: str, source: str, count: int = 3, rows: int = 5) -> str:
    """[2, rows, 12] as [2, heads, rows, 4]."""
    return (
        f"%{name}.r = reshape(%{source}) shape=[2,{rows},{count},4]; %{name}h = transpose(%{name}.r) perm=[0,2,1,3]; "
    )


QKV = heads("q", "q") + heads("k", "k") + heads("v", "v")
SCORES = "%s = matmul(%qh, %kh) transpose_b=true; "
END = "%o = matmul(%p, %vh); %t = transpose(%o) perm=[0,2,1,3]; %y = reshape(%t) shape=[2,5,12]"


def found(before: Graph) -> str:
    """The graph's nodes once moves that cancel are gone; one attention among them, whose values are those before."""
    result = run(RECOGNISE_ATTENTION, before)
    assert [action for _, action, _ in said(result)] == ["recognised attention"]
    after = optimize(result.graph, POLICY).graph
    return "; ".join(
        line.strip().split(": ", 1)[0] + " =" + line.split("=", 1)[1].split("  //")[0].split(" @")[0]
        for line in format_graph(after).splitlines()
        if " = " in line
    )
