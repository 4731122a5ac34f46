"""Layers as the family `cutlass` is asked about them, and what it offers and emits."""

from __future__ import annotations

from families_harness import Input, Layer, graph_with

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Target, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
SAME = Conv((1, 1), (1, 1), (1, 1), (1, 1))


def conv(x: tuple[int, ...], w: tuple[int, ...], op: Conv = SAME, *rest: Input, stages: tuple[EpilogueOp, ...] = ()):  # type: ignore[no-untyped-def]
    return Layer("conv", op, (Input(x), Input(w, True), Input((w[0],), True), *rest), stages, DType.F16)


def steps(layer: Layer, target: Target = H200) -> list[ProposedStep]:
    graph, node = graph_with(layer)
    return [alternative.steps[0] for alternative in FAMILY.propose(graph, node, target, layer.precision)[0]]


def reasons(layer: Layer, target: Target = H200) -> list[str]:
    graph, node = graph_with(layer)
    return [refusal.reason for refusal in FAMILY.propose(graph, node, target, layer.precision)[1]]


def first(layer: Layer, target: Target = H200) -> tuple[KernelProblem, Candidate]:
    problem = steps(layer, target)[0].problem
    return problem, FAMILY.candidates(problem, target)[0][0]


def emitted(layer: Layer, target: Target = H200) -> tuple[str, str, str]:
    """Member type, its arguments and the call, without namespaces."""
    problem, candidate = first(layer, target)
    count = len(problem.inputs)
    at = StepExpressions(
        tuple(f"x{i}" for i in range(count)),
        ("y",),
        tuple(f"w{i}" if problem.inputs[i].constant else None for i in range(count)),
    )
    code = FAMILY.emit(problem, candidate, target, at)
    assert code.includes == ("bolt_cutlass/plans/prepared.h",)
    texts = (code.member_type or "", code.member_arguments, code.call)
    kernel, arguments, call = (t.replace("bolt::cutlass_kernels::", "").replace("bolt::", "") for t in texts)
    return kernel, arguments, call
