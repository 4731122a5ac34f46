"""What clusters of blocks save: they read from L2 once what their tiles have in common."""

from __future__ import annotations

from families_harness import graph_with
from gpu_products import matmul

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.targets import Target, target_named

H100, H200 = target_named("h100"), target_named("h200")
FAMILY = Cutlass()
TILE = (("m", 128), ("n", 128), ("k", 64), ("warpgroups", "pingpong"))
ALONE, TWO = Candidate("cutlass", TILE, ()), Candidate("cutlass", (*TILE, ("cluster", "2x1")), ())


def seconds(target: Target, candidate: Candidate, rows: int) -> float:
    """Of a product with 8192 columns and a depth of 2048, as Llama has them."""
    graph, node = graph_with(matmul("up", (rows, 256, 2048), 8192, False, ()))
    problem = FAMILY.propose(graph, node, target, DType.F16)[0][0].steps[0].problem
    assert FAMILY.refuse(problem, candidate, target) is None
    return FAMILY.predict(problem, candidate, target)


def test_a_long_product_waits_for_the_l2_of_an_h100_without_them() -> None:
    assert seconds(H100, ALONE, 8) > 1.05 * seconds(H100, TWO, 8)


def test_an_h200_reads_fast_enough_without_them() -> None:
    assert seconds(H200, ALONE, 8) == seconds(H200, TWO, 8)
