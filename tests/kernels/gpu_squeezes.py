"""Gates of squeeze and excitation: two products of single pixels in one kernel."""

from __future__ import annotations

from families_harness import Layer
from gpu_harness import TARGET, Trial
from gpu_pairs import graph_of_both, pair
from gpu_products import SILU, conv

from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation

SIGMOID = (EpilogueOp(Activation("sigmoid")),)
HARD = (EpilogueOp(Activation("hard_sigmoid", 1 / 6, 0.5)),)

CLUSTERS = tuple(
    Candidate("portable", (("algorithm", "tensor_cores"), ("warps", warps), ("cluster", cluster), ("parts", parts)))
    for warps, cluster, parts in ((8, 1, 1), (16, 2, 4), (8, 4, 1), (16, 8, 1), (8, 8, 2), (16, 8, 2))
)
"""Blocks of both sizes, clusters of all."""


def gate(label: str, images: int, channels: int, between: int, out: int, *, bias: bool = True) -> Layer:
    """SiLU between, a sigmoid behind; ReLU and the sigmoid of straight lines where there is no bias."""
    first = conv(label, (images, channels, 1, 1), between, (1, 1), bias=bias, **({"epilogue": SILU} if bias else {}))
    second = conv("gate", (images, between, 1, 1), out, (1, 1), epilogue=SIGMOID if bias else HARD, bias=bias)
    return pair(first, second)


def squeezes() -> list[Trial]:
    """Loads of 8, 4, 2 and 1 channels at either product, results of several blocks, many rows between."""
    found = []
    for layer in (
        gate("squeeze", 3, 96, 10, 96), gate("squeeze-8", 2, 40, 8, 600), gate("squeeze-odd", 5, 7, 3, 9, bias=False),
        gate("squeeze-4", 2, 1156, 100, 20), gate("squeeze-2", 200, 6, 2, 300, bias=False),
        gate("squeeze-wide", 3, 576, 144, 580), gate("squeeze-between", 2, 336, 88, 336, bias=False),
        gate("squeeze-deep", 19, 2080, 12, 40), gate("squeeze-large", 9, 1536, 72, 776),
    ):  # fmt: skip
        graph, node = graph_of_both(layer)
        both = [each for each in Portable().propose(graph, node, TARGET, layer.precision)[0] if each.apart]
        for alternative in both:
            (step,) = alternative.steps
            candidates = list(Portable().candidates(step.problem, TARGET)[0])
            if layer.label.startswith(("squeeze-between", "squeeze-deep")):
                # Blocks share tiles of the first product, and the depth of one.
                candidates += [c for c in CLUSTERS if Portable().refuse(step.problem, c, TARGET) is None]
            found += [Trial(layer, step, candidate) for candidate in dict.fromkeys(candidates)]
    return found
