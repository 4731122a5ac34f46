"""The order of passes, passes of other packages, and the check behind each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from planner_checks import graph
from planner_fakes import POLICY

from bolt_build.graph.invariants import InvariantError
from bolt_build.graph.ir import Graph
from bolt_build.planner import pipeline
from bolt_build.planner.passes.base import Pass, PassResult
from bolt_build.planner.pipeline import optimize, passes
from bolt_build.schema.recipe import Policy

RELU = """
    graph g batch=1 (%x: f32[2]) -> (%y) {
      %y = relu(%x) // "y"
    }"""


@dataclass(frozen=True, order=True)
class Entry:
    """Stands for an entry point of another package."""

    name: str
    load: Callable[[], Pass]


def plugged(monkeypatch: pytest.MonkeyPatch, *added: Pass) -> None:
    entries = [Entry(each.name, lambda each=each: each) for each in added]  # type: ignore[misc]
    monkeypatch.setattr(pipeline, "entry_points", lambda group: entries if group == "bolt_build.passes" else [])


def nothing(graph: Graph, policy: Policy) -> PassResult:
    return PassResult(graph, ())


def test_the_order_is_this() -> None:
    assert [each.name for each in passes()] == [
        "remove-dead", "fold-constants", "remove-copies", "merge-moves", "merge-slices", "remove-copies",
        "merge-duplicates", "fold-pads", "recognise-activations", "fold-batch-norm", "fold-affine", "merge-branches",
        "fold-affine", "merge-duplicates", "remove-dead", "fuse-epilogues",
    ]  # fmt: skip


def test_passes_of_other_packages_stand_once_where_they_ask_to(monkeypatch: pytest.MonkeyPatch) -> None:
    late, early = Pass("late", nothing), Pass("early", nothing, before="remove-dead")
    last = Pass("last", nothing, before="a pass that does not exist")
    plugged(monkeypatch, late, early, last)
    names = [each.name for each in passes()]
    assert (names[0], names[-3:]) == ("early", ["late", "fuse-epilogues", "last"])
    assert len(names) == len(pipeline.PIPELINE) + 3


def test_a_pass_that_breaks_the_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(graph: Graph, policy: Policy) -> PassResult:
        return PassResult(replace(graph, nodes=()), ())

    plugged(monkeypatch, Pass("forgetful", forget))
    with pytest.raises(InvariantError) as raised:
        optimize(graph(RELU), POLICY)
    assert str(raised.value).startswith("graph 'g after forgetful' is broken: ")


def test_passes_see_what_those_before_left() -> None:
    """A BatchNorm behind arithmetic and a Pad, with a spelled-out activation behind it: one node is left."""
    before = graph("""
        graph g batch=1 (%x: f32[1,3,4,4]) -> (%y) {
          const %w: f32[2,3,3,3] #
          const %s: f32[2,1,1] #
          const %g: f32[2] #
          const %b: f32[2] #
          const %m: f32[2] #
          const %v: f32[2] positive
          const %low: f32[] {0}
          %p = pad(%x) begin=[0,0,1,1] end=[0,0,1,1] // "pad"
          %a = conv(%p, %w) // "conv"
          %k = mul(%a, %s) // "mul"
          %n = batch_norm(%k, %g, %b, %m, %v) epsilon=1e-5 // "norm"
          %i = identity(%n) // "dropout"
          %y = max(%i, %low) // "max"
        }""")
    result = optimize(before, POLICY)
    (node,) = result.graph.nodes
    assert node.covers == ("pad", "conv", "mul", "norm", "max")
    assert [stage.op.kind for stage in node.epilogue] == ["activation"]
