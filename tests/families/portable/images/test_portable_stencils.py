"""Windows over few planes on GPUs: whom the kernel is for, what candidates state, what is refused."""

from __future__ import annotations

import pytest
from families_harness import Layer, graph_with
from gpu_products import conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")


def problem_of(layer: Layer, layout: Layout = Layout.ROW) -> KernelProblem:
    graph, node = graph_with(layer)
    proposed = FAMILY.propose(graph, node, H200, DType.F16)[0]
    problems = (each.steps[0].problem for each in proposed)
    return next(p for p in problems if p.outputs[0].format == type(p.outputs[0].format)(DType.F16, layout))


def mask(**how: object) -> Layer:
    return conv("mask", (32, 1, 256, 256), 1, (3, 3), epilogue=(), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["h200", "a100", "t4"])
@pytest.mark.parametrize(
    "layer",
    [
        mask(),
        mask(stride=2),
        mask(dilation=2),
        conv("blur", (8, 3, 224, 224), 3, (5, 5), epilogue=(), groups=3),
        conv("edges", (1, 1, 512, 512), 2, (3, 3), epilogue=()),
        conv("line", (4, 1, 16000), 4, (25,), epilogue=()),
    ],
    ids=["mask", "strides", "apart", "blur", "edges", "line"],
)
def test_they_are_predicted_to_be_faster_than_the_plain_kernel(layer: Layer, target: str) -> None:
    found = [str(each) for each in FAMILY.candidates(problem_of(layer), target_named(target))[0]]
    assert found[0].startswith("portable algorithm=stencil lanes=")
    assert found[-1] == "portable algorithm=direct"


@pytest.mark.parametrize(
    ("layer", "layout"),
    [
        (conv("wide", (2, 5, 8, 8), 4, (3, 3)), Layout.ROW),
        (conv("many", (2, 1, 8, 8), 5, (3, 3)), Layout.ROW),
        (conv("large", (2, 3, 8, 8), 2, (7, 7)), Layout.ROW),
        (conv("pixel", (2, 3, 8, 8), 3, (1, 1)), Layout.ROW),
        (conv("last", (2, 1, 8, 8), 1, (3, 3)), Layout.CHANNELS_LAST),
        (conv("volume", (2, 1, 4, 8, 8), 1, (3, 3, 3)), Layout.ROW),
    ],
    ids=["5 channels", "5 filters", "147 products", "one position", "channels last", "volumes"],
)
def test_others_have_other_kernels(layer: Layer, layout: Layout) -> None:
    found = [str(each) for each in FAMILY.candidates(problem_of(layer, layout), H200)[0]]
    assert not [each for each in found if "stencil" in each]


@pytest.mark.parametrize(
    ("layer", "lanes", "why"),
    [
        (mask(), 3, "a thread has 1, 2, 4 or 8 neighbours"),
        (conv("odd", (1, 1, 5, 9), 1, (3, 3)), 2, "rows of 9 columns are no multiple of 2"),
        (
            conv("held", (1, 1, 48, 192), 4, (1, 29), 3), 8,
            "a thread would hold 82 numbers, at most 80 stay in registers",
        ),
        (
            conv("far", (1, 1, 8, 64), 1, (3, 3), dilation=16), 8,
            "stencil: a window reaches over 33 columns, at most 31 stay in registers",
        ),
    ],
)  # fmt: skip
def test_refuses_what_threads_do_not_hold(layer: Layer, lanes: int, why: str) -> None:
    candidate = Candidate("portable", (("algorithm", "stencil"), ("lanes", lanes)))
    assert FAMILY.refuse(problem_of(layer), candidate, H200) == why


def test_emits_what_candidates_state() -> None:
    at = StepExpressions(("x", "w", "b"), ("y",), (None, None, None))
    candidate = Candidate("portable", (("algorithm", "stencil"), ("lanes", 8)))
    code = FAMILY.emit(problem_of(mask(stride=2, bias=False)), candidate, H200, at)
    types = "bolt::portable::f16, bolt::portable::f16, bolt::portable::f16"
    assert code.call.startswith(f"bolt::portable::stencil<1, 1, 3, 3, 2, 2, 1, 8, {types}>(r, bolt::portable::Stencil")
