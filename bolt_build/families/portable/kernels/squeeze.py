"""Two products of single pixels in one kernel: the gate of squeeze and excitation, [N, C] over few channels to
[N, C]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.chains import chained, parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import bias, chain, refuse_stages
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.chains import NodeChain, chain_from
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.chain import Chain
from bolt_build.graph.ops.conv import Conv
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
_PIXEL = (1, 1)

_ROUND, _RATE = 0.25e-6, 1.1e11
"""Seconds of a round of loads, which waits for the round before, and bytes of weights that come to a multiprocessor in
a second. Guesses: of an H200 there are times of an earlier kernel alone, which had fewer loads under way."""


@dataclass(frozen=True)
class SqueezeTile:
    """An image has so many `blocks`. Each computes all that lies between the products."""

    blocks: int

    @property
    def parameters(self) -> Named:
        return ()

    @property
    def settings(self) -> Named:
        return (("blocks", self.blocks),)

    @staticmethod
    def read(reader: Reader) -> SqueezeTile:
        return SqueezeTile(reader.number("blocks"))


def _products(problem: KernelProblem) -> tuple[KernelProblem, KernelProblem] | None:
    """The two convolutions, where there are as many and each is of single pixels."""
    problems = parts(problem)
    if len(problems) != 2 or not all(_of_pixels(each) for each in problems):
        return None
    first, second = problems
    return first, second


def _of_pixels(problem: KernelProblem) -> bool:
    op = problem.op
    if not isinstance(op, Conv) or op.groups != 1 or any((*op.pads_begin, *op.pads_end)):
        return False
    x, weights = (problem.inputs[index] for index in op_operands(problem)[:2])
    return x.shape[2:] == _PIXEL and weights.shape[2:] == _PIXEL and weights.constant


def _refuse(problem: KernelProblem) -> str | None:
    both = _products(problem)
    if both is None:
        return "computes two products in one kernel where both are of single pixels"
    first, second = both
    between, channels = first.outputs[0].shape[1], first.inputs[0].shape[1]
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
    return computed_only(problem) or refuse_stages(first, axis=1) or refuse_stages(second, axis=1)


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


def _lanes(extent: int) -> int:
    """Neighbours of a row of so many that are read at once: as many as one load can have."""
    return next(lanes for lanes in (8, 4, 2, 1) if extent % lanes == 0)


@dataclass(frozen=True)
class _Cut:
    """Threads of a block, rows of the first product that a warp has at once, and threads of a row of the second."""

    threads: int
    rows: int
    beside: int


def _cut(both: tuple[KernelProblem, KernelProblem]) -> _Cut:
    """As many rows a warp as leave no warp without one; as few threads a row as read it in one round of loads."""
    first, second = both
    channels, between, out = first.inputs[0].shape[1], first.outputs[0].shape[1], second.outputs[0].shape[1]
    threads = _MANY if max(channels, out) * between > _LIGHT else _FEW
    rows = next(rows for rows in (4, 2, 1) if rows == 1 or between >= rows * threads // _WARP)
    loads = ceil(between / _lanes(between))
    beside = next(count for count in (1, 2, 4, 8, 16, _WARP) if count == _WARP or 2 * loads <= _LOADS * count)
    return _Cut(threads, rows, beside)


def _emit(problem: KernelProblem, tile: SqueezeTile | None, at: StepExpressions) -> StepCode:
    both = _products(problem)
    assert both is not None
    assert tile is not None, "every gate has blocks"
    first, second = both
    count = len(first.inputs)
    behind = replace(at, inputs=("", *at.inputs[count:]))
    images, channels = first.inputs[0].shape[:2]
    between, out = first.outputs[0].shape[1], second.outputs[0].shape[1]
    cut = _cut(both)
    parameters = struct(
        "bolt::portable::Squeeze", images=images, channels=channels, between=between, out=out, blocks=tile.blocks
    )
    ones, others = op_operands(first), op_operands(second)
    operands = (first.inputs[0], first.inputs[ones[1]], second.inputs[others[1]], problem.outputs[0])
    numbers = (cut.threads, cut.rows, cut.beside, _lanes(channels), _lanes(between))
    types = ", ".join([*map(str, numbers), *(COMPUTED[o.format.dtype] for o in operands)])
    call = (
        f"bolt::portable::squeeze<{types}>(r, {parameters}, {at.inputs[0]}, {at.inputs[ones[1]]}, "
        f"{behind.inputs[others[1]]}, {at.outputs[0]}, "
        f"{chain(first, at, tuple(bias(first, at, index) for index in ones[2:]))}, "
        f"{chain(second, behind, tuple(bias(second, behind, index) for index in others[2:]))});"
    )
    return StepCode(("bolt_portable/cuda/squeeze.h",), None, "", call)


def squeezed(
    graph: Graph, node: Node, target: Target, precision: DType
) -> tuple[NodeChain, KernelProblem, tuple[KernelProblem, KernelProblem]] | None:
    """The product behind `node`, the problem of both in one kernel, and those of either: where both are of single
    pixels and a GPU computes them. Elsewhere products one by one leave nothing to gain."""
    if target.gpu is None or not isinstance(node.op, Conv) or graph.type(node.outputs[0]).shape[2:] != _PIXEL:
        return None
    found = chain_from(graph, node)
    if found is None or found.obstacle is not None or not isinstance(found.second.op, Conv):
        return None
    first, second = (_problem(graph, each, target, precision) for each in (found.first, found.second))
    if not (_of_pixels(first) and _of_pixels(second)):
        return None
    return found, chained(first, second), (first, second)


def _problem(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node channels-last, as other families compute it."""
    rank = graph.type(node.outputs[0]).rank
    layouts = (Layout.CHANNELS_LAST if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), Layout.CHANNELS_LAST)


def _latency(problem: KernelProblem) -> float:
    """Of the rounds, which are those of the input, of each warp's rows and of the rows behind; and of their bytes."""
    both = _products(problem)
    assert both is not None
    cut, (first, second) = _cut(both), both
    channels, between, out = first.inputs[0].shape[1], first.outputs[0].shape[1], second.outputs[0].shape[1]
    rows = ceil(between / (cut.rows * cut.threads // _WARP))
    along = ceil(channels / (_lanes(channels) * _WARP * _LOADS // cut.rows))
    part = ceil(out / _usual(problem).blocks)
    behind = ceil(part / (cut.threads // cut.beside)) * ceil(between / (_lanes(between) * cut.beside * _LOADS // 2))
    return _ROUND * (1 + rows * along + behind) + 2 * between * (channels + part) / _RATE


_PLAIN = Plain(_usual, SqueezeTile.read, _refuse_tile, _emit)
RULES = (
    Rule(
        Chain, _refuse, _PLAIN.emit_usual, lambda problem: 0.02, gpu_efficiency=0.005, gpu_latency=_latency,
        plain=_PLAIN,
    ),
)  # fmt: skip
