"""Every pass keeps what every graph means: graphs that are drawn, on a CPU and on two GPUs, pass by pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

import kept_meaning
import numpy as np
import pytest
from drawn_attention import ATTENTION
from drawn_graphs import Growing, Layer, drawn
from drawn_heads import HEADS
from drawn_images import IMAGES
from drawn_integers import INTEGERS
from drawn_layers import (
    LAYERS,
    activation,
    batch_norm,
    concat,
    of_two,
    piece,
    pool,
    reshape,
    transpose,
    with_constant,
)  # fmt: skip
from drawn_networks import NETWORKS
from drawn_products import PRODUCTS
from drawn_sequences import SEQUENCES
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_meaning import CLOSE, Changed, keeps_its_meaning, small_thresholds
from mutations import mutated
from planner_checks import graph, random_inputs

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, Graph, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.reference import evaluate
from bolt_build.planner import pipeline
from bolt_build.planner.passes.base import Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

ALL = (*LAYERS, *PRODUCTS, *NETWORKS * 2, *HEADS * 2)
MORE = (*ALL, *ATTENTION * 2, *IMAGES, *SEQUENCES)
QUANTISED = (*INTEGERS * 3, activation, with_constant, of_two, reshape, transpose, concat, piece, pool, batch_norm)
STEP = 0.03
"""A number on the edge of two of a grid may become either: some steps, where the largest number has a hundred."""


def checked(
    which: Callable[[int], int], layers: Sequence[Layer] = ALL, close: float = CLOSE, most: int = 8
) -> Counter[str]:
    """How often each pass changed something of one graph. Raises Changed."""
    g = drawn(which, layers, most)
    made = g.finish()
    with small_thresholds():
        return Counter() if made is None else keeps_its_meaning(made, g.fed(), close)


def checked_all(
    seeds: Iterable[int], layers: Sequence[Layer] = ALL, close: float = CLOSE, most: int = 8
) -> Counter[str]:
    acted: Counter[str] = Counter()
    for seed in seeds:
        try:
            acted += checked(Random(seed).randrange, layers, close, most)
        except Changed as changed:
            raise AssertionError(f"seed {seed}: {changed}") from changed
    return acted


@settings(max_examples=150)
@given(st.data())
def test_each_pass_keeps_what_a_graph_means(data: st.DataObject) -> None:
    checked(lambda count: data.draw(st.integers(0, count - 1)), MORE)


def test_each_pass_keeps_what_a_quantised_graph_means() -> None:
    acted = checked_all(range(20), QUANTISED, STEP)
    assert set(acted) >= {"move-integers", "multiply-integers", "round-products", "map-integers", "fake-quantise"}


@pytest.mark.large
def test_each_pass_keeps_what_large_graphs_mean() -> None:
    """What passes look for stands beside much else, whose extents are the same by chance."""
    checked_all(range(250), most=40)


@pytest.mark.large
def test_each_pass_keeps_what_decoders_and_odd_images_mean() -> None:
    acted = checked_all(range(400), (*ATTENTION * 4, *IMAGES), most=4)
    assert acted["recognise-attention"] > 100


@pytest.mark.large
def test_every_pass_has_something_to_do_and_keeps_what_many_graphs_mean() -> None:
    """Sums of integers come of products at run time alone."""
    acted = checked_all(range(1500)) + checked_all(range(300), QUANTISED, STEP)
    for layers in (LAYERS, PRODUCTS, NETWORKS, HEADS, ATTENTION, IMAGES, SEQUENCES):
        acted += checked_all(range(900), layers)
    assert {each.name for each in pipeline.PIPELINE} - set(acted) == {"scale-sums"}


def near_misses(seeds: Iterable[int], layers: Sequence[Layer], most: int = 6) -> int:
    """How many graphs with one to three things changed were tried: those whose numbers are moderate."""
    tried = 0
    for seed in seeds:
        random = Random(seed)
        made = drawn(random.randrange, layers, most).finish()
        for _ in range(random.choice((1, 2, 3))):
            made = made and (mutated(made, random) or made)
        if made is None:
            continue
        fed = drawn_inputs(made, seed)
        with np.errstate(all="ignore"):
            if not is_moderate(made, fed):
                continue
            try:
                with small_thresholds():
                    keeps_its_meaning(made, fed, NEAR)
            except Changed as changed:
                raise AssertionError(f"seed {seed}: {changed}") from changed
        tried += 1
    return tried


NEAR = 1e-3
"""Changed graphs divide by what may be little."""


def is_moderate(of: Graph, fed: dict[str, Array]) -> bool:
    """Whether the graph has values, and none is large or no number."""
    try:
        known = evaluate(of, fed).values()
    except ShapeError:  # an index that lies outside now
        return False
    return all(bool((np.abs(array.astype(np.float64)) < 1e4).all()) for array in known if array.dtype.kind == "f")


def drawn_inputs(of: Graph, seed: int) -> dict[str, Array]:
    """Integers are 0 or 1, which stand for places in every tensor."""
    random = np.random.default_rng(seed)
    drawn = {name: (of.type(name).shape, numpy_dtype(of.type(name).dtype)) for name in of.inputs}
    return {
        name: (random.normal(size=shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)
        for name, (shape, dtype) in drawn.items()
    }


def test_what_is_nearly_looked_for_keeps_its_meaning() -> None:
    assert near_misses(range(60), MORE) > 20


@pytest.mark.large
@pytest.mark.parametrize("layers", [LAYERS, PRODUCTS, NETWORKS, HEADS, ATTENTION, IMAGES, SEQUENCES], ids=range(7))
def test_so_do_many_graphs(layers: Sequence[Layer]) -> None:
    assert near_misses(range(1000, 2500), layers) > 400


def test_what_is_drawn_is_the_same_for_the_same_draws() -> None:
    def graph_of(seed: int) -> Growing:
        return drawn(Random(seed).randrange, ALL)

    assert graph_of(1).finish() == graph_of(1).finish() != graph_of(2).finish()


def wrong(graph: Graph) -> PassResult:
    """A pass that takes the sides of a difference for those of a sum."""
    editor = GraphEditor(graph)
    for node in editor.nodes():
        if node.op == Binary("sub"):
            editor.replace(node, replace(node, inputs=node.inputs[::-1]))
    return PassResult(editor.finish(), ())


def test_a_pass_that_changes_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,3], %z: f32[2,3]) -> (%y) {
          %d = sub(%x, %z) // "d"
          %y = relu(%d) // "y"
        }""")
    inputs = random_inputs(before, 0)
    assert keeps_its_meaning(before, inputs)["fuse-epilogues"]
    monkeypatch.setattr(kept_meaning, "PIPELINE", (Pass("turn-sides", wrong), *pipeline.PIPELINE))
    with pytest.raises(Changed, match=r"^turn-sides: 'd' is off by \S+ of the largest$"):
        keeps_its_meaning(before, inputs)
