"""Kernels on Hopper for a convolution and the pooling of its maxima, weights in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, refuse_channels, stage_words
from bolt_build.families.cutlass.expense import copy_seconds
from bolt_build.families.cutlass.expense import expense as product_expense
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.windows.resident import (
    CHANNELS,
    STEP,
    UNIT,
    packed,
    refuse_windows,
    seconds_of,
    taps,
    tile_seconds,
)
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.padding import refuse_padding
from bolt_build.families.cutlass.problems.product import Product, aligned, work
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.targets import Gpu, Target

_WINDOWS: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {((2, 2), (0, 0)): 2, ((3, 3), (1, 1)): 3}
"""The kernel's name of a pooling with steps of two, by its window and the padding in front of it."""
_MEMORY_MB = 700


@dataclass(frozen=True)
class PooledTile:
    """`rows` by `width` positions of what is pooled, `steps` of 16 channels in each tap of the window; `pool` 2 takes
    two by two positions, 3 three by three behind one of padding, both two apart. Two warpgroups take strips of tiles in
    turns.

    Strips are tiles where `pool` is 2. Windows of three overlap: a strip is then a column of tiles, whose last row and
    column count in the next ones too.
    """

    rows: int
    width: int
    steps: int
    pool: int

    @property
    def overlaps(self) -> bool:
        """True where a row of what is pooled, or a column, counts in two places."""
        return self.pool == 3

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that a tile leaves."""
        return self.rows // 2, self.width // 2 - self.overlaps

    @property
    def staged_bytes(self) -> int:
        """Shared memory for what a warpgroup stores: whole matrices, and the column that is the next strip's."""
        rows, columns = self.extent
        pixels = aligned(rows, 4 if self.width == UNIT else 2) * columns + (8 if self.overlaps else 0)
        return aligned(pixels) * CHANNELS * 2

    def strips(self, batch: int, pooled: tuple[int, int], length: int) -> int:
        """How many strips of `length` tiles there are of so many images of so many rows and columns."""
        rows, columns = self.extent
        down = length * rows
        below = 1 if pooled[0] <= down else ceil((pooled[0] - self.overlaps) / (down - self.overlaps))
        return batch * ceil(pooled[1] / columns) * below

    @property
    def parameters(self) -> Named:
        shape = (("rows", self.rows), ("width", self.width), ("steps", self.steps))
        return (*shape, ("resident", "turns"), ("pool", self.pool))

    @classmethod
    def read(cls, reader: Reader) -> PooledTile:
        rows, width, steps, pool = map(reader.number, ("rows", "width", "steps", "pool"))
        reader.word("resident", {"turns": "turns"})
        return cls(rows, width, steps, pool)

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::PooledTile<16, 4, 4, 1, 16, 3>`"""
        values = (self.rows, self.steps, *taps(product), self.width, self.pool)
        return f"{SPACE}::PooledTile<{', '.join(map(str, values))}{product.element}>"

    def refuse(self, gpu: Gpu, product: Product, pooled: tuple[int, int]) -> str | None:
        """Why the tile is none on this GPU for a convolution that is pooled to so many rows and columns."""
        reason = refuse_windows(self.rows, self.width, self.steps, 2 * self.staged_bytes, gpu, product)
        if reason is not None:
            return reason
        for what, has, of in zip(("rows", "columns"), self.extent, pooled, strict=True):
            if has >= 2 * of:
                return Reason(f"half of its {what} would be beyond the {{}} of a pooled image", of)
        return None

    def __str__(self) -> str:
        return (
            f"{self.rows}x{self.width} positions pooled {self.pool}x{self.pool}, "
            f"weights of {self.steps * STEP} channels in registers"
        )


_SHAPES = {2: ((14, 8), (16, 8), (8, 8), (14, 16), (16, 16)), 3: ((16, 16), (14, 16), (8, 16), (4, 16))}


def tiles(product: Product, pool: int) -> tuple[PooledTile, ...]:
    """The tiles that may be some for a convolution and a pooling."""
    steps = ceil(product.depth / STEP)
    return tuple(PooledTile(rows, width, steps, pool) for rows, width in _SHAPES[pool])


# Not measured: what a warpgroup takes to pool and store a tile after its products, while no other one multiplies; in
# seconds a position.
_ALONE = 0.9e-9


def longest(tile: PooledTile, pooled: tuple[int, int]) -> int:
    """Tiles of the longest strip."""
    return ceil(pooled[0] / tile.extent[0]) if tile.overlaps else 1


@dataclass(frozen=True)
class PooledConv:
    """A convolution, and what its results are pooled to: so many rows and columns. Activations in between take so many
    instructions of a result."""

    product: Product
    pool: int
    extents: tuple[int, int]
    functions: int


def length(tile: PooledTile, what: PooledConv, target: Target) -> int:
    """Tiles of a strip: as many as make the busiest SM be done soonest."""
    strips = range(longest(tile, what.extents), 0, -1)
    return min(strips, key=lambda tiles_of_strip: _busiest(tile, what, tiles_of_strip, target))


def seconds(tile: PooledTile, what: PooledConv, nbytes: int, target: Target, strip: int) -> float:
    """Predicted time of a kernel that moves so many bytes: the busiest SM's strips of so many tiles, or memory."""
    return seconds_of(2, _busiest(tile, what, strip, target) / 2, nbytes, target)


def _busiest(tile: PooledTile, what: PooledConv, length: int, target: Target) -> float:
    """Predicted time of the strips of the busiest SM."""
    product = what.product
    strips = tile.strips(dict(product.shape)["batch"], what.extents, length)
    rounds = ceil(strips / max(1, gpu_of(target).sms // ceil(product.n / CHANNELS)))
    one = tile_seconds(tile.rows, tile.width, CHANNELS, product, target, what.functions)
    # The last of an odd number of strips has no other one beside it.
    return rounds * length * one + rounds % 2 * length * tile.rows * tile.width * _ALONE


def product_of(problem: KernelProblem) -> Product:
    """The convolution of a problem that `refuse_pooled` does not refuse."""
    # Two results beside each other would be one position of what is pooled.
    return conv.product_of(parts(problem)[0], whole_rows=True)


def refuse_pooled(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes both, whatever its tile."""
    first, second = parts(problem)
    if (reason := conv.refuse(first) or refuse_channels(first)) is not None:
        return within("the convolution", reason)
    if (reason := refuse_padding(first, product_of(problem))) is not None:
        return within("the convolution", reason)
    op = second.op
    assert isinstance(op, Pool)
    if len(op.kernel) != 2:
        return Reason("pools over two spatial axes, not {}", len(op.kernel))
    if op.mode != "max":
        return f"takes max pooling, not {op.mode}"
    if op.strides != (2, 2) or op.dilations != (1, 1) or (op.kernel, op.pads_begin) not in _WINDOWS:
        return "takes pooling of 2x2, or of 3x3 with a padding of one, with a stride of two"
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


class Pooled(TileKind[PooledTile, PooledConv]):
    """The kind of kernels for a convolution and the pooling of its maxima."""

    def serves(self, problem: KernelProblem) -> bool:
        _, *behind = problem.op.sequence
        return len(behind) == 1 and isinstance(behind[0].op, Pool)

    def read_tile(self, reader: Reader) -> PooledTile:
        return PooledTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return _refuse(problem, gpu)

    def computed(self, problem: KernelProblem) -> PooledConv:
        functions = instructions(parts(problem)[0].epilogue)
        return PooledConv(product_of(problem), _pool(problem), _extents(problem), functions)

    def tiles_for(self, what: PooledConv, gpu: Gpu) -> tuple[tuple[PooledTile, ...], str | None]:
        return tiles(what.product, what.pool), None

    def refuse_tile(self, tile: PooledTile, what: PooledConv, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what.product, what.extents)

    def usual(self, tile: PooledTile, what: PooledConv, target: Target) -> Named:
        return _settings(tile, length(tile, what, target))

    def refuse_settings(self, tile: PooledTile, what: PooledConv, candidate: Candidate) -> str | None:
        strips = range(1, longest(tile, what.extents) + 1)
        if any(candidate.settings == _settings(tile, strip) for strip in strips):
            return None
        return f"{candidate} has settings that it cannot have here, or lacks some"

    def seconds(self, problem: KernelProblem, what: PooledConv, candidate: Candidate, target: Target) -> float:
        tile = self.tile_of(candidate)
        return _predicted(problem, what, tile, target, _strip(tile, candidate))

    def group(self, tile: PooledTile) -> str:
        return "pooled"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both, without what lies between them. Columns that two strips compute are not counted."""
        first, second = parts(problem)
        found = product_expense(first, product_of(problem))
        nbytes = found.nbytes - first.outputs[0].nbytes + second.outputs[0].nbytes
        return Expense(nbytes, found.flops + second.flops, found.why, found.copied, found.copied_as)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, product_of(problem), 0, None)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        first, tile = parts(problem)[0], self.tile_of(candidate)
        product = product_of(problem).reading(first.inputs[0], at.input_pitch(0))
        member = f"{SPACE}::PooledConv<{tile.cxx(product)}, {epilogue_type(first)}, {product.source}>"
        (height, width), strip = _extents(problem), _strip(tile, candidate)
        arguments = (
            product.arguments(between_rows(at)), product.source_value, constant(at, 1),
            packed(product, tile.steps, -(-product.n // CHANNELS)),
            constant(at, *range(2, len(first.inputs))),
            epilogue_value(first), struct(f"{SPACE}::Pooling", pool_h=height, pool_w=width, length=strip),
        )  # fmt: skip
        call = f"kernel.run(r, {at.inputs[0]}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/plans/pooled.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        text = (
            '#include "bolt_cutlass/units/conv_pooled_kernel.h"\n\n'
            f"template void {SPACE}::launch_conv(\n    {self.tile_of(candidate).cxx(product_of(problem))},\n"
            f"    const {SPACE}::ConvArguments&, const {SPACE}::Pooling&,\n"
            f"    const {epilogue_type(parts(problem)[0])}&, void*);\n"
        )
        tile = self.tile_of(candidate)
        label = f"conv{stage_words(parts(problem)[0])} | pool, tile {tile}"
        return named_unit(text, _MEMORY_MB, label)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "needs WGMMA"
    if (reason := refuse_pooled(problem)) is not None:
        return reason
    if product_of(problem).kernel != "Conv":
        return "takes pooling behind larger windows than 1x1"
    return None


def _settings(tile: PooledTile, strip: int) -> Named:
    """How a candidate states the tiles of a strip, where there may be several."""
    return (("strip", strip),) if tile.overlaps else ()


def _strip(tile: PooledTile, candidate: Candidate) -> int:
    """The tiles of a strip that a candidate states. Raises ValueError."""
    reader = Reader(candidate.settings)
    if tile.overlaps and not reader.has("strip"):
        raise ValueError(f"{candidate} states not all of its settings")
    strip = reader.number("strip", 1)
    reader.end()
    return strip


def _predicted(problem: KernelProblem, what: PooledConv, tile: PooledTile, target: Target, strip: int) -> float:
    """With the bytes of the convolution, but of what it leaves only those that are pooled."""
    first = parts(problem)[0]
    nbytes = work(first, what.product).nbytes - first.outputs[0].nbytes + problem.outputs[0].nbytes
    return copy_seconds(first, what.product, target) + seconds(tile, what, nbytes, target, strip)
