"""The order of passes, passes of other packages, and the check behind each."""

from __future__ import annotations

from dataclasses import replace

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


def test_the_order_is_this() -> None:
    assert [each.name for each in passes()] == [
        "remove-dead",
        "fold-constants",
        "remove-copies",
        "known-integers",
        "recognise-substitutions",
        "recognise-sinkhorn",
        "reshape-gathers",
        "slice-scatters",
        "slice-tuples",
        "move-parts",
        "merge-moves",
        "join-gathers",
        "merge-slices",
        "turn-parts",
        "remove-copies",
        "merge-duplicates",
        "recognise-scans",
        "chosen-matrices",
        "unsorted-rows",
        "narrow-places",
        "repeated-indices",
        "ask-booleans",
        "compare-hardmaxes",
        "gather-windows",
        "gather-pieces",
        "sum-selections",
        "scale-images",
        "expand-late",
        "broadcast",
        "scale-sums",
        "fake-quantise",
        "move-integers",
        "fold-pads",
        "fold-crops",
        "reduce-whole-windows",
        "recognise-activations",
        "recognise-norms",
        "recognise-group-norms",
        "recognise-response-norms",
        "recognise-rotary",
        "part-neighbours",
        "recognise-rotary",
        "recognise-log-sums",
        "recognise-softmaxes",
        "part-shares",
        "batch-parts",
        "sum-biases",
        "recognise-attention",
        "masks-apart",
        "fold-constants",
        "masks-by-distance",
        "merge-moves",
        "remove-copies",
        "join-latent-keys",
        "turn-images",
        "fold-pads",
        "norm-early",
        "norm-parts",
        "fold-batch-norm",
        "stage-parts",
        "fold-affine",
        "merge-branches",
        "add-stacked",
        "gate-sums",
        "move-later",
        "fold-affine",
        "merge-branches",
        "fold-forward",
        "merge-duplicates",
        "remove-dead",
        "early-means",
        "early-means",
        "fold-gated",
        "join-phases",
        "spread-parts",
        "spread-columns",
        "multiply-columns",
        "gate-branches",
        "multiply-patches",
        "move-heads-later",
        "carry-choices",
        "carry-moves",
        "turn-rows",
        "merge-moves",
        "remove-copies",
        "scale-norms",
        "fold-parts",
        "order-heads",
        "select-early",
        "attend-channels",
        "shift-queries",
        "merge-projections",
        "share-projections",
        "share-few-rows",
        "gate-columns",
        "slice-gathers",
        "gather-rows",
        "add-pairs",
        "mask-blocks",
        "share-keys",
        "single-rows",
        "multiply-wide-heads",
        "mix-heads",
        "weigh-windows",
        "multiply-windows",
        "place-products",
        "share-projections",
        "multiply-pairs",
        "split-depths",
        "merge-rearrangements",
        "move-images",
        "multiply-integers",
        "resample-images",
        "recognise-squares",
        "add-to-images",
        "fuse-epilogues",
        "round-products",
        "map-integers",
        "fake-quantise",
        "trim-windows",
        "fold-lines",
        "pad-channels",
        "flatten-volumes",
        "pool-volumes",
        "fold-columns",
        "fold-columns",
        "fold-results",
        "trim-windows",
        "split-groups",
        "multiply-shuffles",
        "remove-copies",
        "pad-heads",
        "pad-slices",
        "order-slices",
        "pad-channels",
        "join-slices",
        "pad-filters",
        "split-batches",
        "fuse-channels",
        "fuse-windows",
    ]


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
