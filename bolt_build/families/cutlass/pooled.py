"""A convolution and the pooling of its maxima in one kernel: which problems can be, with which kernels, and the C++."""

from __future__ import annotations

from bolt_build.families.base import Candidate, Expense, KernelProblem, Refusal, StepCode, StepExpressions
from bolt_build.families.chains import parts
from bolt_build.families.cutlass import conv
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value
from bolt_build.families.cutlass.expense import expense as product_expense
from bolt_build.families.cutlass.pooled_tiles import PooledTile, length, refuse, seconds, tiles
from bolt_build.families.cutlass.product import Product, work
from bolt_build.families.cutlass.resident import CHANNELS, packed
from bolt_build.families.cxx import struct
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.pool import Pool
from bolt_build.targets import Target

_SPACE = "bolt::cutlass_kernels"
_FAMILY = "cutlass"
_WINDOWS: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {((2, 2), (0, 0)): 2, ((3, 3), (1, 1)): 3}
"""The kernel's name of a pooling with steps of two, by its window and the padding in front of it."""


def product_of(problem: KernelProblem) -> Product:
    """The convolution of a chained problem that `refuse_chain` does not refuse."""
    # Two results beside each other would be one position of what is pooled.
    return conv.product_of(parts(problem)[0], whole_rows=True)


def refuse_chain(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes a chained problem, whatever its tile."""
    first, second = parts(problem)
    if (reason := conv.refuse(first)) is not None:
        return f"the convolution: {reason}"
    op = second.op
    assert isinstance(op, Pool)
    if len(op.kernel) != 2:
        return f"pools over two spatial axes, not {len(op.kernel)}"
    if op.mode != "max":
        return f"pools maxima, here is the {op.mode}"
    if op.strides != (2, 2) or op.dilations != (1, 1) or (op.kernel, op.pads_begin) not in _WINDOWS:
        return "pools two by two positions, or three by three behind one of padding, both two apart"
    if problem.epilogue:
        return "another function follows the pooling"
    if any(not isinstance(stage.op, Activation) for stage in first.epilogue):
        return "another tensor joins in between"
    return None


def _pool(problem: KernelProblem) -> int:
    op = parts(problem)[1].op
    assert isinstance(op, Pool)
    return _WINDOWS[op.kernel, op.pads_begin]


def _extents(problem: KernelProblem) -> tuple[int, int]:
    height, width = problem.outputs[0].shape[2:]
    return height, width


def ranked(problem: KernelProblem, target: Target) -> tuple[list[tuple[float, PooledTile]], tuple[Refusal, ...]]:
    """Tiles for a chained problem with their predicted seconds, fastest first; and why others are none."""
    if target.gpu is None or not target.gpu.warpgroup_mma:
        return [], (Refusal(_FAMILY, problem.op.kind, f"'{target.name}' has no instructions of four warps"),)
    if (reason := refuse_chain(problem)) is not None:
        return [], (Refusal(_FAMILY, problem.op.kind, reason),)
    product, found, refusals = product_of(problem), [], []
    if product.kernel != "Conv":
        return [], (Refusal(_FAMILY, problem.op.kind, "pools behind windows alone, here are single positions"),)
    for tile in tiles(product, _pool(problem)):
        why = refuse(tile, target.gpu, product, _extents(problem))
        if why is None:
            found.append((_predicted(problem, product, tile, target), tile))
        else:
            refusals.append(Refusal(_FAMILY, f"tile {tile}", why))
    return sorted(found, key=lambda each: each[0]), tuple(refusals)


def candidates(problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The kernels for a chained problem in the order of prediction; and why others are none."""
    found, refusals = ranked(problem, target)
    return tuple(candidate_of(tile) for _, tile in found), refusals


def predict(problem: KernelProblem, candidate: Candidate, target: Target) -> float:
    """Predicted seconds of one of `ranked`."""
    return _predicted(problem, product_of(problem), tile_of(candidate), target)


def _predicted(problem: KernelProblem, product: Product, tile: PooledTile, target: Target) -> float:
    """With the bytes of the convolution, but of what it leaves only those that are pooled."""
    first, copy = parts(problem)[0], 0.0
    nbytes = work(first, product).nbytes - first.outputs[0].nbytes + problem.outputs[0].nbytes
    if product.widen is not None:
        moved = first.inputs[0].nbytes + product.widen.nbytes
        copy = moved / target.bandwidth + target.launch_seconds
    return copy + seconds(tile, product, _extents(problem), nbytes, target)


def expense(problem: KernelProblem) -> Expense:
    """Of both, without what lies between them. Columns that two strips compute are not counted."""
    first, second = parts(problem)
    found = product_expense(first, product_of(problem))
    nbytes = found.nbytes - first.outputs[0].nbytes + second.outputs[0].nbytes
    return Expense(nbytes, found.flops + second.flops, found.why, found.copied, found.copied_as)


def candidate_of(tile: PooledTile) -> Candidate:
    """The kernel with the tile."""
    shape = (("rows", tile.rows), ("width", tile.width), ("steps", tile.steps))
    return Candidate(_FAMILY, (*shape, ("resident", "turns"), ("pool", tile.pool)))


def tile_of(candidate: Candidate) -> PooledTile:
    """The tile of a candidate of a chained problem."""
    values = dict(candidate.parameters)
    rows, width, steps, pool = (int(values[name]) for name in ("rows", "width", "steps", "pool"))
    return PooledTile(rows, width, steps, pool)


def emit(problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
    """The C++ of a step that computes both."""
    first, product, tile = parts(problem)[0], product_of(problem), tile_of(candidate)
    member = f"{_SPACE}::PooledConv<{tile.cxx(product)}, {epilogue_type(first)}, {product.source}>"
    pooled = _extents(problem)
    strips = length(tile, product, pooled, target)
    arguments = (
        product.arguments(()), product.source_value, constant(at, 1),
        packed(product, tile.steps, -(-product.n // CHANNELS)),
        constant(at, *range(2, len(first.inputs))),
        epilogue_value(first), struct(f"{_SPACE}::Pooling", pool_h=pooled[0], pool_w=pooled[1], length=strips),
    )  # fmt: skip
    call = f"{{member}}.run(r, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_cutlass/pooled.h",), member, ", ".join(arguments), call)


def unit_text(problem: KernelProblem, candidate: Candidate, target: Target) -> str:
    """The source that instantiates the kernel."""
    return (
        '#include "bolt_cutlass/conv_pooled_kernel.h"\n\n'
        f"template void {_SPACE}::launch_conv(\n    {tile_of(candidate).cxx(product_of(problem))},\n"
        f"    const {_SPACE}::ConvArguments&, const {_SPACE}::Pooling&,\n"
        f"    const {epilogue_type(parts(problem)[0])}&, void*);\n"
    )


def of_warpgroups(candidate: Candidate) -> bool:
    """True: the kernels use instructions of four warps."""
    return True
