"""The CUTLASS family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bolt_build.digest import digest
from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    Operand,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.families.cutlass import chains, conv, flatten, matmul, prediction
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, residual
from bolt_build.families.cutlass.expense import expense
from bolt_build.families.cutlass.kernels import SPACE, Kernel, candidate_of, cxx_tile, kernel_of, loads_of
from bolt_build.families.cutlass.product import ALIGNMENT, Product, Products
from bolt_build.families.cutlass.resident import ResidentTile, packed_for
from bolt_build.families.cutlass.settings import arguments_of, slices_of, variants
from bolt_build.families.offered import refuse_unoffered
from bolt_build.families.problems import op_operands, problem_of
from bolt_build.families.stages import may_share
from bolt_build.graph.chains import link
from bolt_build.graph.ir import Graph, Layout, Node, Op
from bolt_build.graph.ops.chain import Chain
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.shape import Reshape
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class _Rule:
    refuse: Callable[[KernelProblem], str | None]
    product: Products
    narrow: Callable[[KernelProblem], int | None]


_RULES: dict[type[Op], _Rule] = {
    Conv: _Rule(conv.refuse, conv.product_of, conv.narrow),
    MatMul: _Rule(matmul.refuse, matmul.product_of, matmul.narrow),
}


class Cutlass:
    """`Family` of convolutions and matrix products, with bias, residual and activations in the epilogue; of two of them
    in one kernel, and of a convolution with the pooling behind it."""

    name = "cutlass"

    @property
    def include_dir(self) -> Path:
        return Path(__file__).parent / "include"

    @property
    def sources(self) -> tuple[Path, ...]:
        return ()

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        if isinstance(node.op, Reshape):
            return self._flattened(graph, node, target, precision)
        if type(node.op) not in _RULES:
            return (), (Refusal(self.name, node.name, f"{node.op.kind} is left to other families"),)
        found: list[Alternative] = []
        reasons: list[str] = []
        legal: list[KernelProblem] = []
        for problem in _problems(graph, node, target, precision):
            ranked, refusals = _ranked(problem, target)
            reasons += [refusal.reason for refusal in refusals if not ranked]
            if ranked:
                legal.append(problem)
                share = may_share(problem, node.inputs, ())
                step = ProposedStep(problem, node.inputs, node.outputs, share, pitched=_pitched(problem))
                found.append(Alternative((node.name,), self.name, (step,), ranked[0][0]))
        refused = tuple(Refusal(self.name, node.name, reason) for reason in dict.fromkeys(reasons))
        linked = link(graph, node) if legal else None
        if linked is None:
            return tuple(found), refused
        second = _problems(graph, linked.second, target, precision)[0]
        joint, apart = chains.propose(graph, linked, legal, second, target)
        return (*found, *joint), (*refused, *apart)

    def _flattened(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The reshape with the matrix product behind it."""
        product = flatten.reader(graph, node)
        if product is None or isinstance(product, str):
            reason = product or f"{node.op.kind} is left to other families"
            return (), (Refusal(self.name, node.name, reason),)
        problem = flatten.problem(graph, node, product, target, precision)
        ranked, refusals = _ranked(problem, target)
        if not ranked:
            return (), tuple(Refusal(self.name, node.name, refusal.reason) for refusal in refusals)
        steps = flatten.steps(graph, node, product, problem)
        return (Alternative((node.name, product.name), self.name, steps, ranked[0][0]),), ()

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """None: these kernels compute products."""
        return None

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """In the order of prediction, but for the first few, among which is one of each kind: in slices of the depth,
        whole, whole on instructions of four warps, and with weights in registers, where there are such."""
        if isinstance(problem.op, Chain):
            return chains.way(problem).candidates(problem, target)
        ranked, refusals = _ranked(problem, target)
        return tuple(candidate_of(kernel) for _, kernel in ranked), refusals

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Other numbers of slices; other orders in which persistent blocks go through the tiles."""
        if isinstance(problem.op, Chain):
            return ()
        return variants(product_of(problem, kernel_of(candidate)), candidate, target)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """The order of tiles is not part of the prediction."""
        if isinstance(problem.op, Chain):
            return chains.way(problem).predict(problem, candidate, target)
        kernel = kernel_of(candidate)
        return prediction.seconds(problem, product_of(problem, kernel), kernel, target, slices_of(candidate))

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """Padded channels and copies of the input included; sums of slices are not, which depend on the candidate."""
        if isinstance(problem.op, Chain):
            return chains.way(problem).expense(problem)
        return expense(problem, product_of(problem, None if candidate is None else kernel_of(candidate)))

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        return refuse_unoffered(self, problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        if isinstance(problem.op, Chain):
            return chains.way(problem).emit(problem, candidate, target, at)
        own, kernel = op_operands(problem), kernel_of(candidate)
        product = product_of(problem, kernel)
        bias = constant(at, *own[2:])
        name = f"Split{product.kernel}" if kernel.partial else product.kernel
        tile = cxx_tile(kernel, product, _gpu(target))
        out = ", float" if product.wide else ""
        member = f"{SPACE}::{name}<{tile}, {epilogue_type(problem)}, {product.source}{out}>"
        arguments = (
            arguments_of(product, candidate, target, at.pitch(0)), product.source_value, constant(at, own[1]),
            _packed(product, kernel), bias, epilogue_value(problem),
        )  # fmt: skip
        added = residual(problem)
        other = "nullptr" if added is None else at.inputs[added]
        call = f"{{member}}.run(r, {at.inputs[own[0]]}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/prepared.h",), member, ", ".join(arguments), call)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """One instantiation each, so that an engine compiles its winners alone and tuning compiles none twice."""
        found = {unit.name: unit for unit in (_unit(problem, candidate, target) for problem, candidate in steps)}
        return tuple(found[name] for name in sorted(found))


def product_of(problem: KernelProblem, kernel: Kernel | None = None) -> Product:
    """How a problem that no rule refuses is computed, by kernels of whole loads or by `kernel`."""
    return _RULES[type(problem.op)].product(problem, ALIGNMENT if kernel is None else loads_of(kernel.tile))


def _pitched(problem: KernelProblem) -> tuple[int, ...]:
    """Output 0, unless a row of the product is several of it, which lie one behind the other."""
    return (0,) if product_of(problem).n == problem.outputs[0].row else ()


def _gpu(target: Target) -> Gpu:
    assert target.gpu is not None
    return target.gpu


def _problems(graph: Graph, node: Node, target: Target, precision: DType) -> tuple[KernelProblem, ...]:
    """The node channels-last (a matrix product row-major); a first layer that copies its input anyway also straight
    from the planes of an image, and a last matrix product also to fp32, as the model has it."""
    rank = graph.type(node.outputs[0]).rank
    last = Layout.CHANNELS_LAST if isinstance(node.op, Conv | Pool) else Layout.ROW
    layouts = tuple(last if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    problem = problem_of(graph, node, target, precision, layouts, last)
    if isinstance(node.op, MatMul) and node.outputs[0] in graph.outputs and precision is DType.F16:
        output = Operand(problem.outputs[0].shape, TensorFormat(DType.F32, Layout.ROW))
        return (problem, replace(problem, outputs=(output,))) if _is_f32(graph, node) else (problem,)
    if not isinstance(node.op, Conv):
        return (problem,)
    x, planes = op_operands(problem)[0], TensorFormat(DType.F32, Layout.ROW)
    formats = [problem.inputs[x].format]
    if conv.thin(problem):
        formats += [planes, TensorFormat(precision, Layout.ROW)]
    elif conv.gathers(problem) and node.inputs[0] in graph.inputs and graph.type(node.inputs[0]).dtype is DType.F32:
        formats.append(planes)
    return tuple(_with_input(problem, x, format) for format in formats)


def _is_f32(graph: Graph, node: Node) -> bool:
    return graph.type(node.outputs[0]).dtype is DType.F32


def _with_input(problem: KernelProblem, index: int, format: TensorFormat) -> KernelProblem:
    operands = list(problem.inputs)
    operands[index] = type(operands[index])(operands[index].shape, format, operands[index].constant)
    return KernelProblem(
        problem.op, tuple(operands), problem.outputs, problem.epilogue, problem.accumulate, problem.target
    )


def _ranked(problem: KernelProblem, target: Target) -> tuple[list[tuple[float, Kernel]], tuple[Refusal, ...]]:
    """Kernels for the problem with their predicted seconds, fastest first; and why others are none."""
    rule, what = _RULES.get(type(problem.op)), problem.op.kind
    if rule is None:
        return [], (Refusal("cutlass", what, f"{what} is left to other families"),)
    if target.gpu is None or target.gpu.instruction("fp16") is None:
        return [], (Refusal("cutlass", what, f"target '{target.name}' has no tensor cores"),)
    if (reason := rule.refuse(problem)) is not None:
        return [], (Refusal("cutlass", what, reason),)
    found, refusals = prediction.ranked(problem, rule.product(problem, ALIGNMENT), target)
    loads = rule.narrow(problem)
    if loads is None:
        return found, tuple(refusals)
    unpadded, others = prediction.unpadded(problem, rule.product(problem, loads), loads, target)
    return prediction.with_each_kind_first([*found, *unpadded]), (*refusals, *others)


def _packed(product: Product, kernel: Kernel) -> str:
    """How the kernel wants the weights packed."""
    return packed_for(kernel.tile, product) if isinstance(kernel.tile, ResidentTile) else product.weights


_WARPGROUP_MB, _WARP_MB, _RESIDENT_MB = 700, 900, 700
"""Memory that compiling a kernel takes at its peak."""


def _unit(problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
    """What instantiates the kernel. Sums of slices have no epilogue: such a kernel serves every problem of its kind."""
    if isinstance(problem.op, Chain):
        joint = chains.way(problem)
        text = joint.unit_text(problem, candidate, target)
        memory = _WARPGROUP_MB if joint.of_warpgroups(candidate) else _WARP_MB
        return KernelUnit(f"k_{digest(text)[:16]}.cu", text, memory)
    kernel = kernel_of(candidate)
    product = product_of(problem, kernel)
    kind = product.kernel.lower()
    way, memory = "", _WARP_MB
    if kernel.of_warpgroups:
        way, memory = "_warpgroup", _WARPGROUP_MB
    elif kernel.resident:
        way, memory = "_resident", _RESIDENT_MB
    tile = cxx_tile(kernel, product, _gpu(target))
    epilogue = f"{SPACE}::Partial" if kernel.partial else epilogue_type(problem)
    text = (
        f'#include "bolt_cutlass/{kind}{way}_kernel.h"\n\n'
        f"template void {SPACE}::launch_{kind}(\n    {tile},\n"
        f"    const {SPACE}::{product.kernel}Arguments&,\n    const {epilogue}&, void*);\n"
    )
    return KernelUnit(f"k_{digest(text)[:16]}.cu", text, memory)
