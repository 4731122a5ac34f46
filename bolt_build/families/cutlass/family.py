"""The CUTLASS family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.digest import digest
from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    KernelProblem,
    KernelUnit,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.families.cutlass import conv, matmul
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, residual
from bolt_build.families.cutlass.product import Product, Products, work
from bolt_build.families.cutlass.tiles import TILES, Tile, Work, refuse, seconds
from bolt_build.families.cutlass.warpgroups import WARPGROUP_TILES, WarpgroupTile
from bolt_build.families.cutlass.warpgroups import refuse as refuse_warpgroups
from bolt_build.families.cutlass.warpgroups import seconds as warpgroup_seconds
from bolt_build.families.problems import op_operands, problem_of
from bolt_build.families.stages import may_share
from bolt_build.graph.ir import Graph, Layout, Node, Op
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.targets import Gpu, Target, target_named

_SPACE = "bolt::cutlass_kernels"

AnyTile = Tile | WarpgroupTile


@dataclass(frozen=True)
class _Rule:
    refuse: Callable[[KernelProblem], str | None]
    product: Products


_RULES: dict[type[Op], _Rule] = {
    Conv: _Rule(conv.refuse, conv.product_of),
    MatMul: _Rule(matmul.refuse, matmul.product_of),
}


class Cutlass:
    """`Family` of convolutions and matrix products, with bias, residual and activations in the epilogue."""

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
        if type(node.op) not in _RULES:
            return (), (Refusal(self.name, node.name, f"{node.op.kind} is left to other families"),)
        found: list[Alternative] = []
        reasons: list[str] = []
        for problem in _problems(graph, node, target, precision):
            ranked, refusals = _ranked(problem, target)
            reasons += [refusal.reason for refusal in refusals if not ranked]
            if ranked:
                step = ProposedStep(problem, node.inputs, node.outputs, may_share(problem, node.inputs, ()))
                found.append(Alternative((node.name,), self.name, (step,), ranked[0][0]))
        return tuple(found), tuple(Refusal(self.name, node.name, reason) for reason in dict.fromkeys(reasons))

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """None: these kernels compute products."""
        return None

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        ranked, refusals = _ranked(problem, target)
        return tuple(_candidate(tile) for _, tile in ranked), refusals

    def emit(self, problem: KernelProblem, candidate: Candidate, at: StepExpressions) -> StepCode:
        product, own = _RULES[type(problem.op)].product(problem), op_operands(problem)
        bias = _constant(at, own[2]) if len(own) > 2 else f'{_SPACE}::Constant{{nullptr, ""}}'
        tile = _tile_type(problem, product, candidate)
        member = f"{_SPACE}::{product.kernel}<{tile}, {epilogue_type(problem)}, {product.source}>"
        arguments = (
            product.arguments, product.source_value, _constant(at, own[1]), product.weights, bias,
            epilogue_value(problem),
        )  # fmt: skip
        added = residual(problem)
        other = "nullptr" if added is None else at.inputs[added]
        call = f"{{member}}.run(r, {at.inputs[own[0]]}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/prepared.h",), member, ", ".join(arguments), call)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]]) -> tuple[KernelUnit, ...]:
        """One kernel each; those of warpgroups by kind and epilogue, because their headers take most of the time."""
        packs: dict[tuple[str, str], dict[str, None]] = {}
        for problem, candidate in steps:
            header, text = _instantiation(problem, candidate)
            together = epilogue_type(problem) if _of_warpgroups(candidate) else text
            packs.setdefault((header, together), {})[text] = None
        return tuple(
            sorted((_unit(header, sorted(texts)) for (header, _), texts in packs.items()), key=lambda unit: unit.name)
        )


def _problems(graph: Graph, node: Node, target: Target, precision: DType) -> tuple[KernelProblem, ...]:
    """The node channels-last (a matrix product row-major); a first layer also straight from the planes of an image."""
    rank = graph.type(node.outputs[0]).rank
    last = Layout.CHANNELS_LAST if isinstance(node.op, Conv) else Layout.ROW
    layouts = tuple(last if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    problem = problem_of(graph, node, target, precision, layouts, last)
    if not isinstance(node.op, Conv) or not conv.thin(problem):
        return (problem,)
    x = op_operands(problem)[0]
    formats = (problem.inputs[x].format, TensorFormat(DType.F32, Layout.ROW), TensorFormat(precision, Layout.ROW))
    return tuple(_with_input(problem, x, format) for format in formats)


def _with_input(problem: KernelProblem, index: int, format: TensorFormat) -> KernelProblem:
    operands = list(problem.inputs)
    operands[index] = type(operands[index])(operands[index].shape, format, operands[index].constant)
    return KernelProblem(
        problem.op, tuple(operands), problem.outputs, problem.epilogue, problem.accumulate, problem.target
    )


def _ranked(problem: KernelProblem, target: Target) -> tuple[list[tuple[float, AnyTile]], tuple[Refusal, ...]]:
    """Legal tiles with their predicted seconds, fastest first; and why others are not legal."""
    rule, what = _RULES.get(type(problem.op)), problem.op.kind
    if rule is None:
        return [], (Refusal("cutlass", what, f"{what} is left to other families"),)
    if target.gpu is None or target.gpu.instruction("fp16") is None:
        return [], (Refusal("cutlass", what, f"target '{target.name}' has no tensor cores"),)
    if (reason := rule.refuse(problem)) is not None:
        return [], (Refusal("cutlass", what, reason),)
    product = rule.product(problem)
    copy = 0.0
    if product.widen is not None:
        moved = problem.inputs[op_operands(problem)[0]].nbytes + product.widen.nbytes
        copy = moved / target.bandwidth + target.launch_seconds
    legal: list[tuple[float, AnyTile]] = []
    refusals: list[Refusal] = []
    needed = work(problem, product)
    for tile in (*TILES, *WARPGROUP_TILES):
        reason = _refuse_tile(tile, target.gpu, product)
        if reason is None:
            legal.append((copy + _seconds(tile, needed, target), tile))
        else:
            refusals.append(Refusal("cutlass", f"tile {tile}", reason))
    return sorted(legal, key=lambda pair: pair[0]), tuple(refusals)


def _refuse_tile(tile: AnyTile, gpu: Gpu, product: Product) -> str | None:
    return refuse(tile, gpu, product.n) if isinstance(tile, Tile) else refuse_warpgroups(tile, gpu, product)


def _seconds(tile: AnyTile, needed: Work, target: Target) -> float:
    return seconds(tile, needed, target) if isinstance(tile, Tile) else warpgroup_seconds(tile, needed, target)


def _candidate(tile: AnyTile) -> Candidate:
    sizes = (("m", tile.m), ("n", tile.n), ("k", tile.k))
    if isinstance(tile, WarpgroupTile):
        return Candidate("cutlass", (*sizes, ("warpgroups", "cooperative" if tile.cooperative else "pingpong")))
    return Candidate("cutlass", (*sizes, ("warp_m", tile.warp_m), ("warp_n", tile.warp_n), ("stages", tile.stages)))


def _of_warpgroups(candidate: Candidate) -> bool:
    return "warpgroups" in dict(candidate.parameters)


def _tile_type(problem: KernelProblem, product: Product, candidate: Candidate) -> str:
    values = [value for _, value in candidate.parameters]
    if _of_warpgroups(candidate):
        cooperative = "true" if values[3] == "cooperative" else "false"
        return f"{_SPACE}::WarpgroupTile<{values[0]}, {values[1]}, {values[2]}, {cooperative}>"
    gpu = target_named(problem.target).gpu
    assert gpu is not None
    instruction = gpu.instruction("fp16")
    assert instruction is not None
    return f"{_SPACE}::Tile<{', '.join(map(str, values))}, {product.access}, {instruction[2]}>"


def _constant(at: StepExpressions, index: int) -> str:
    """A `Constant`: its expression names it, which is the same in every plan of a model."""
    expression = at.prepare_inputs[index]
    return f'{_SPACE}::Constant{{{expression}, "{expression}"}}'


def _instantiation(problem: KernelProblem, candidate: Candidate) -> tuple[str, str]:
    """The header that defines the kernel, and what instantiates it."""
    product = _RULES[type(problem.op)].product(problem)
    kind = product.kernel.lower()
    header = f"{kind}_warpgroup_kernel.h" if _of_warpgroups(candidate) else f"{kind}_kernel.h"
    tile, epilogue = _tile_type(problem, product, candidate), epilogue_type(problem)
    text = (
        f"template void {_SPACE}::launch_{kind}(\n    {tile},\n"
        f"    const {_SPACE}::{product.kernel}Arguments&,\n    const {epilogue}&, void*);\n"
    )
    return header, text


def _unit(header: str, instantiations: Sequence[str]) -> KernelUnit:
    text = "\n".join((f'#include "bolt_cutlass/{header}"\n', *instantiations))
    megabytes = 3500 + 500 * len(instantiations) if "warpgroup" in header else 900
    return KernelUnit(f"k_{digest(text)[:16]}.cu", text, megabytes)
