"""Two products of single pixels in one kernel: the gate of squeeze and excitation, [N, C] over few channels to
[N, C]."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.chains import chained
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.common.problems import problem_of
from bolt_build.families.portable.kernels.products.gates import PIXEL, Gate, gate_of, lanes_of, of_pixels
from bolt_build.families.portable.kernels.products.half_gates import FORM
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.products.chain import Chain
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.chains import NodeChain, chain_from
from bolt_build.targets import Target

_MOST, _MOST_BETWEEN = 4096, 1024
"""Channels that shared memory has room for, and those between the products."""
_RESULTS, _BLOCKS = 256, 160
"""Results of a block, and about how many blocks are usual: as many as a large GPU has multiprocessors."""
_FEW, _MANY = 256, 1024
"""Threads of a block, and those where either product has over `_LIGHT` weights: so many more loads are under way."""
_LIGHT = 6144
_WARP, _LOADS = 32, 8
"""Threads of a warp, and loads of a thread that are under way."""

_BEGIN, _MORE, _ROUND, _RATE = 1.55e-6, 1.1e-6, 0.5e-6, 6.5e10
"""Seconds of a launch, what larger blocks take longer, and seconds of a round of loads, which waits for the one before;
bytes of weights that come to a multiprocessor in a second. Fitted to 73 gates of an H200."""


@dataclass(frozen=True)
class SqueezeTile(NumberTile):
    """An image has so many `blocks`. Each computes all that lies between the products."""

    SETTINGS = ("blocks",)

    blocks: int


def _refuse(problem: KernelProblem) -> str | None:
    gate = gate_of(problem)
    if gate is None:
        return "computes two products in one kernel where both are of single pixels"
    between, channels = gate.between, gate.channels
    if channels > _MOST or between > _MOST_BETWEEN:
        return Reason(
            "{} channels and {} between the products, at most {} and {} are supported",
            channels,
            between,
            _MOST,
            _MOST_BETWEEN,
        )
    if any(stage.operand is not None and not problem.inputs[stage.operand].constant for stage in problem.epilogue):
        return "another tensor joins the second product"
    return computed_only(problem) or refuse_stages(gate.first, axis=1) or refuse_stages(gate.second, axis=1)


def _most_blocks(problem: KernelProblem) -> int:
    """Of an image, as long as each has results."""
    return -(-problem.outputs[0].shape[1] // _RESULTS)


def _usual(problem: KernelProblem) -> SqueezeTile:
    images = problem.inputs[0].shape[0]
    return SqueezeTile(max(1, min(_most_blocks(problem), _BLOCKS // max(images, 1))))


def _refuse_tile(problem: KernelProblem, tile: SqueezeTile) -> str | None:
    if tile.blocks <= (most := max(1, _most_blocks(problem))):
        return None
    return Reason("an image has results for {} blocks of {} threads, not for {}", most, _RESULTS, tile.blocks)


@dataclass(frozen=True)
class _Cut:
    """Threads of a block, rows of the first product that a warp has at once, and threads of a row of the second."""

    threads: int
    rows: int
    beside: int


def _cut(gate: Gate) -> _Cut:
    """As many rows a warp as leave no warp without one; as few threads a row as read it in one round of loads."""
    between = gate.between
    threads = _MANY if max(gate.channels, gate.out) * between > _LIGHT else _FEW
    rows = next(rows for rows in (4, 2, 1) if rows == 1 or between >= rows * threads // _WARP)
    loads = ceil(between / lanes_of(between))
    beside = next(count for count in (1, 2, 4, 8, 16, _WARP) if count == _WARP or 2 * loads <= _LOADS * count)
    return _Cut(threads, rows, beside)


def _emit(problem: KernelProblem, tile: SqueezeTile | None, at: StepExpressions) -> StepCode:
    gate = gate_of(problem)
    assert gate is not None
    assert tile is not None, "every gate has blocks"
    cut = _cut(gate)
    parameters = struct(
        "bolt::portable::Squeeze",
        images=gate.images,
        channels=gate.channels,
        between=gate.between,
        out=gate.out,
        blocks=tile.blocks,
    )
    numbers = (cut.threads, cut.rows, cut.beside, lanes_of(gate.channels), lanes_of(gate.between))
    types = ", ".join([*map(str, numbers), *(COMPUTED[o.format.dtype] for o in gate.operands)])
    call = f"bolt::portable::squeeze<{types}>(r, {parameters}, {gate.arguments(at)});"
    return StepCode(("bolt_portable/cuda/products/squeeze.h",), None, "", call)


def squeezed(
    graph: Graph, node: Node, target: Target, precision: DType
) -> tuple[NodeChain, KernelProblem, tuple[KernelProblem, KernelProblem]] | None:
    """The product behind `node`, the problem of both in one kernel, and those of either: where both are of single
    pixels and a GPU computes them. Elsewhere products one by one leave nothing to gain."""
    if target.gpu is None or not isinstance(node.op, Conv) or graph.type(node.outputs[0]).shape[2:] != PIXEL:
        return None
    found = chain_from(graph, node)
    if found is None or found.obstacle is not None or not isinstance(found.second.op, Conv):
        return None
    first, second = (_problem(graph, each, target, precision) for each in (found.first, found.second))
    if not (of_pixels(first) and of_pixels(second)):
        return None
    return found, chained(first, second), (first, second)


def _problem(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node channels-last, as other families compute it."""
    rank = graph.type(node.outputs[0]).rank
    layouts = (Layout.CHANNELS_LAST if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), Layout.CHANNELS_LAST)


def _seconds(problem: KernelProblem, target: Target) -> float:
    """Of the rounds, which are those of each warp's rows and of the rows behind, and of their bytes. A multiprocessor
    has one large block at once."""
    gate, gpu = gate_of(problem), target.gpu
    assert gate is not None
    assert gpu is not None, "there is no gate in one kernel on hosts"
    cut, blocks = _cut(gate), _usual(problem).blocks
    channels, between = gate.channels, gate.between
    rows = ceil(between / (cut.rows * cut.threads // _WARP))
    along = ceil(channels / (lanes_of(channels) * _WARP * _LOADS // cut.rows))
    part = ceil(gate.out / blocks)
    behind = ceil(part / (cut.threads // cut.beside)) * ceil(between / (lanes_of(between) * cut.beside * _LOADS // 2))
    waves = ceil(blocks * gate.images / (gpu.sms * (_MANY // cut.threads)))
    width = gate.operands[1].format.dtype.nbytes
    each = _ROUND * (rows * along + behind) + width * between * (channels + part) / _RATE
    return _BEGIN + (_MORE if cut.threads == _MANY else 0.0) + max(waves * each, problem.nbytes / target.bandwidth)


_PLAIN = Plain(_usual, SqueezeTile.read, _refuse_tile, _emit)
RULES = (
    Rule(
        Chain, _refuse, _PLAIN.emit_usual, lambda problem: 0.02, gpu_seconds=_seconds,
        plain=_PLAIN, forms=(FORM,),
    ),
)  # fmt: skip
