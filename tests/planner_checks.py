"""What planner tests ask of a graph before and after a pass."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
from planner_fakes import POLICY

from bolt_build.graph import invariants
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.reference import evaluate
from bolt_build.graph.text import format_graph, parse_graph
from bolt_build.planner.passes.base import Pass, PassResult


def graph(text: str) -> Graph:
    """A graph from indented text."""
    return parse_graph(dedent(text).strip() + "\n")


def body(after: Graph) -> str:
    """The nodes of a graph as text, one a line; the head, constants and types left out."""
    lines = [line.strip() for line in format_graph(after).splitlines() if " = " in line]
    return "\n".join(line.split(":", 1)[0] + " =" + line.split("=", 1)[1] for line in lines)


def said(result: PassResult) -> list[tuple[str, str, str]]:
    """Subject, action and reason of every decision."""
    return [(d.subject, d.action, d.reason) for d in result.decisions]


def run(each: Pass, before: Graph) -> PassResult:
    """The pass applied, with everything checked that holds of any pass: invariants, outputs' names, values."""
    result = each.run(before, POLICY)
    invariants.check(result.graph)
    assert result.graph.outputs == before.outputs
    assert result.graph.inputs == before.inputs
    same_values(before, result.graph)
    return result


def random_inputs(of: Graph, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        name: random.normal(size=of.type(name).shape).astype(numpy_dtype(of.type(name).dtype)) for name in of.inputs
    }


def same_values(before: Graph, after: Graph, seeds: tuple[int, ...] = (0, 1), tolerance: float = 2e-5) -> None:
    """Every value of `after` that has a name of `before` has its values too."""
    for seed in seeds:
        inputs = random_inputs(before, seed)
        expected, found = evaluate(before, inputs), evaluate(after, inputs)
        shared = [v.name for v in after.values if not v.synthetic and v.constant is None]
        assert set(after.outputs) <= set(found)
        for name in dict.fromkeys([*shared, *after.outputs]):
            scale = max(1.0, float(np.abs(expected[name].astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(
                found[name].astype(np.float64), expected[name].astype(np.float64), rtol=tolerance,
                atol=tolerance * scale, err_msg=f"value '{name}'",
            )  # fmt: skip
