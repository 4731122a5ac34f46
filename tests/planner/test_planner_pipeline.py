"""The order of passes, passes of other packages, and the check behind each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from planner_checks import graph
from planner_fakes import POLICY

from bolt_build.errors import BoltError
from bolt_build.graph.invariants import InvariantError
from bolt_build.graph.ir import Graph
from bolt_build.planner import pipeline
from bolt_build.planner.passes.base import Pass, PassResult
from bolt_build.planner.pipeline import optimize, passes, unknown_passes
from bolt_build.plugins import Found, Offer, Plugged

RELU = """
    graph g batch=1 (%x: f32[2]) -> (%y) {
      %y = relu(%x) // "y"
    }"""


def plugged(monkeypatch: pytest.MonkeyPatch, *added: Pass) -> None:
    """Lets a package offer the passes."""
    offers = [
        Offer("bolt_build.passes", each.name, f"more.passes:{each.name.upper()}", "more", "1.0") for each in added
    ]
    found = Found(tuple(Plugged(offer, each) for offer, each in zip(offers, added, strict=True)), ())
    monkeypatch.setattr(pipeline, "plugged", lambda **asked: found)


def nothing(graph: Graph) -> PassResult:
    return PassResult(graph, ())


def test_every_pass_of_the_folders_runs_and_a_constant_is_called_as_it_is() -> None:
    """Passes that share a name do the same under several conditions; one of their constants is called so."""
    folder = Path(pipeline.__file__).parent / "passes"
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    defined = [found for each in sources for found in re.findall(r'^([A-Z_]+) = Pass\(\s*"([a-z-]+)"', each, re.M)]
    names = {name for _, name in defined}
    assert names == {each.name for each in pipeline.PIPELINE}
    assert names <= {constant.lower().replace("_", "-") for constant, _ in defined}


def test_a_policy_leaves_passes_out() -> None:
    twice = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y, %z) {
          %y = relu(%x) // "y"
          %z = relu(%x) // "z"
          %unread = relu(%y) // "unread"
        }""")
    named = [node.name for node in optimize(twice, replace(POLICY, skip=("remove-dead",))).graph.nodes]
    assert named == ["y", "z", "unread"]
    assert [node.name for node in optimize(twice, POLICY).graph.nodes] == ["y", "z"]


def test_passes_that_do_not_exist_are_named() -> None:
    assert unknown_passes(["gate-sum", "remove-dead", "else"]) == [
        ("gate-sum", "did you mean 'gate-sums'?"), ("else", "'bolt-build plan' names passes that change something"),
    ]  # fmt: skip


def test_passes_of_other_packages_stand_once_where_they_ask_to(monkeypatch: pytest.MonkeyPatch) -> None:
    late, early = Pass("late", nothing), Pass("early", nothing, before="remove-dead")
    plugged(monkeypatch, late, early)
    names = [each.name for each in passes()]
    assert (names[0], names[-26:-22]) == ("early", ["late", "fuse-epilogues", "round-products", "map-integers"])
    assert len(names) == len(pipeline.PIPELINE) + 2


def test_a_pass_before_one_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged(monkeypatch, Pass("lost", nothing, before="fold-everything"))
    with pytest.raises(BoltError) as raised:
        passes()
    (found,) = raised.value.diagnostics
    assert found.code == "broken-plugin"
    assert found.message == (
        "the package more 1.0 cannot add its pass 'lost' (more.passes:LOST): it asks to run before 'fold-everything'; "
        f"there are {', '.join(dict.fromkeys(each.name for each in pipeline.PIPELINE))}"
    )
    assert found.hint == "upgrade the package, or remove it: python -m pip uninstall more"


def test_a_pass_that_raises_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(graph: Graph) -> PassResult:
        raise KeyError("x")

    plugged(monkeypatch, Pass("stumbling", stumble))
    with pytest.raises(BoltError) as raised:
        optimize(graph(RELU), POLICY)
    (found,) = raised.value.diagnostics
    assert (found.code, found.message) == (
        "failed-plugin", "the pass 'stumbling' of the package more 1.0 failed: KeyError: 'x'",
    )  # fmt: skip


def test_a_pass_that_breaks_the_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(graph: Graph) -> PassResult:
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
