"""Of every drawn graph that takes shorter inputs padded, what they give is what they would give alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest
from drawn_attention import ATTENTION
from drawn_graphs import drawn
from drawn_heads import HEADS
from drawn_images import IMAGES
from drawn_layers import LAYERS
from drawn_networks import NETWORKS
from drawn_products import PRODUCTS
from kept_meaning import differs
from shorter_graphs import LONG, cut, long_extents, padded, shorter

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.padding import padded_ports
from bolt_build.graph.reference import evaluate
from bolt_build.graph.tail import ANYTHING, Padded, Tails

EVERY = (*LAYERS, *PRODUCTS, *NETWORKS, *HEADS, *IMAGES, *ATTENTION * 8)
CLOSE = 5e-4


def found_wrong(seeds: Iterable[int]) -> tuple[Counter[str], list[str]]:
    """How many graphs have the dimension, and take shorter inputs padded; and what is wrong of these."""
    counts, wrong = Counter[str](), list[str]()
    for seed in seeds:
        growing = drawn(Random(seed).randrange, EVERY, 4)
        large = growing.finish()
        if large is None or not any(LONG in large.type(name).shape for name in large.inputs):
            continue
        small = shorter(large)
        if small is None:
            continue
        counts["pairs"] += 1
        if isinstance(padded_ports(small, large), str):
            continue
        counts["padded"] += 1
        given = {name: cut(array) for name, array in growing.fed().items()}
        longer = {name: padded(array, large.type(name).shape) for name, array in given.items()}
        with np.errstate(all="ignore"):
            alone, among = evaluate(small, given), evaluate(large, longer)
        for name in large.outputs:
            real = among[name][tuple(slice(extent) for extent in alone[name].shape)]
            if not np.isnan(alone[name]).any() and (how := differs(real, alone[name], CLOSE)) is not None:
                wrong.append(f"seed {seed}: '{name}' {how}")
    return counts, wrong


def test_shorter_inputs_that_are_padded_give_what_they_give_alone() -> None:
    with long_extents():
        counts, wrong = found_wrong(range(300))
    assert wrong == []
    assert counts["pairs"] > counts["padded"] > 50  # of both kinds there are many


@pytest.mark.large
def test_so_do_many_more() -> None:
    with long_extents():
        assert found_wrong(range(1000, 9000))[1] == []


def test_a_rule_that_lets_padding_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean that is taken over the padded positions too."""

    def tails(op: Reduce, node: Node, at: Padded) -> Tails:
        return {step: ANYTHING for step in at.tails(node.inputs[0]) if _stays(op, node, at, step)}

    def _stays(op: Reduce, node: Node, at: Padded, step: int) -> bool:
        return at.axis(node.inputs[0], step) not in op.axes

    monkeypatch.setattr(Reduce, "tails", tails)
    with long_extents():
        assert found_wrong(range(300, 600))[1]
