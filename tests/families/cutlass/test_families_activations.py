"""What activations of results cost: instructions that predictions of every kind of CUTLASS's kernels count."""

from __future__ import annotations

import pytest
from families_harness import Layer, graph_with
from gpu_pair_layers import behind
from gpu_pairs import pooling, steps_of
from gpu_products import GELU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp
from bolt_build.targets import target_named

H200 = target_named("h200")
FAMILY = Cutlass()


def layer(epilogue: tuple[EpilogueOp, ...]) -> Layer:
    return conv("act", (32, 16, 112, 112), 64, (3, 3), epilogue=epilogue)


def alone(first: Layer) -> KernelProblem:
    return FAMILY.propose(*graph_with(first), H200, DType.F16)[0][0].steps[0].problem


def in_half_precision(both: Layer) -> KernelProblem:
    return next(step.problem for step in steps_of(both) if step.problem.inputs[0].format.dtype is DType.F16)


def longer(plain: KernelProblem, gelu: KernelProblem, kind: str) -> list[float]:
    """How much longer kernels of a kind take with GELU, each that there is."""

    def predicted(problem: KernelProblem) -> dict[Candidate, float]:
        found = FAMILY.candidates(problem, H200)[0]
        return {each: FAMILY.predict(problem, each, H200) for each in found if kind in dict(each.parameters)}

    times, others = predicted(plain), predicted(gelu)
    return [others[each] / times[each] for each in times.keys() & others.keys()]


@pytest.mark.parametrize("kind", ["resident", "rolling", "warp_m", "warpgroups"])
def test_no_kernel_is_faster_with_one_and_some_are_slower(kind: str) -> None:
    more = longer(alone(layer(())), alone(layer(GELU)), kind)
    assert min(more) >= 1.0
    assert max(more) > 1.04


@pytest.mark.parametrize("kind", ["resident", "warpgroups"])
def test_so_it_is_between_two_products(kind: str) -> None:
    plain, gelu = (in_half_precision(behind(layer(epilogue), 64, ())) for epilogue in ((), GELU))
    more = longer(plain, gelu, kind)
    assert min(more) >= 1.0
    assert max(more) > 1.01


def test_so_it_is_in_front_of_a_pooling() -> None:
    plain, gelu = (in_half_precision(pooling(layer(epilogue), 3)) for epilogue in ((), GELU))
    more = longer(plain, gelu, "pool")
    assert min(more) >= 1.0
    assert max(more) > 1.05
