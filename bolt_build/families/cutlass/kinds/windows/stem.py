"""Kernels for a convolution over an image's few channels, which are read as they lie: no copy pads them first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as every
from math import ceil, gcd

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import channels, epilogue_type, epilogue_value, residual, stage_words
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.product import aligned
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

_MOST_CHANNELS = 4
"""Of an image: more are whole loads with little padding."""
_THREADS, _REGISTERS = 128, 128
"""Of a block, and each thread's at most."""
_WARP, _LOADS = 32, 16
"""Threads of a warp, and loads of single numbers that each has under way."""
_LOAD = 16
"""Bytes of a load where rows of the image are whole ones."""
_STEP = 16
"""Depth of an instruction."""
_MOST_STEPS = 10
"""Steps of the depth: where a lane finds each is in a register."""
_STATIC = 48 << 10
"""Bytes of shared memory that a kernel has without asking for them."""
_MEMORY_MB = 300


@dataclass(frozen=True)
class StemTile:
    """A block computes `rows` by `columns` positions at a time, all channels of them."""

    rows: int
    columns: int

    @property
    def parameters(self) -> Named:
        return ("rows", self.rows), ("columns", self.columns), ("stem", 1)

    @classmethod
    def read(cls, reader: Reader) -> StemTile:
        """Raises ValueError."""
        tile = cls(reader.number("rows"), reader.number("columns"))
        reader.number("stem")
        return tile

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} positions of an image as it lies"


TILES = tuple(StemTile(rows, columns) for rows, columns in every((4, 8, 16), (8, 16, 32, 56, 64)))


@dataclass(frozen=True)
class StemConv:
    """`out` channels of images of `height` by `width` pixels, each of `channels`, in `planes` or one pixel after the
    other. Sizes are of height and width. `results` are elements, of which each takes `functions` instructions more.

    `ahead`: numbers of a row in front of a tile's first window that are loaded with it, where rows are whole loads;
    None where numbers are read one by one. `itemsize` is that of a number of the image.
    """

    channels: int
    out: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int]
    given: tuple[int, int]
    made: tuple[int, int]
    images: int
    planes: bool
    itemsize: int
    ahead: int | None
    nbytes: int
    functions: int

    @property
    def kept_planes(self) -> int:
        """Of a tile's image in shared memory, where single numbers become pixels."""
        return self.channels if self.planes and self.ahead is not None else 1

    @property
    def inner(self) -> int:
        """Numbers of a row from a position to the next."""
        return self.channels // self.kept_planes

    @property
    def lead(self) -> int:
        """Zeros in front of the weights of each row of a window, which then begins on a whole word."""
        return 0 if self.ahead is None else self.ahead % 2

    @property
    def together(self) -> int:
        """Eights of channels whose sums a warp has at once."""
        eights = self.out // 8
        return next(count for count in (8, 6, 4, 3, 2, 1) if eights % count == 0)

    @property
    def neighbours(self) -> int:
        """Of these, those of which a lane's channels lie beside each other."""
        return gcd(self.together, 4)

    @property
    def words(self) -> int:
        """Of a row of a window, two numbers each."""
        return ceil((self.lead + self.taps[1] * self.inner) / 2)

    @property
    def steps(self) -> int:
        """Of the depth: rows of a window are whole words."""
        return ceil(self.kept_planes * self.taps[0] * 2 * self.words / _STEP)

    def lines(self, tile: StemTile) -> tuple[int, int]:
        """Rows of the image that a tile reads, and numbers of each."""
        high, wide = ((extent - 1) * step + taps for extent, step, taps in zip(
            (tile.rows, tile.columns), self.stride, self.taps, strict=True
        ))  # fmt: skip
        return self.kept_planes * high, wide * self.inner

    def image_bytes(self, tile: StemTile) -> int:
        """Bytes of shared memory that a tile's image takes."""
        high, line = self.lines(tile)
        if self.ahead is None:
            return 2 * high * (line // 2 * 2 + 2)
        last = self.ahead // 2 * 2 + line - self.taps[1] * self.inner + 2 * self.words
        return high * aligned(last * self.itemsize, _LOAD)

    def twice(self, tile: StemTile) -> bool:
        """True where the next tile's image has room beside a tile's: of whole loads alone."""
        return self.ahead is not None and self._constants + 2 * self.image_bytes(tile) <= _STATIC

    @property
    def _constants(self) -> int:
        """Bytes of the factor and the bias."""
        return self.steps * self.out * 64 + 4 * self.out

    def shared(self, tile: StemTile) -> int:
        """Bytes of shared memory: the factor, the bias, and a tile's image or two."""
        return self._constants + (2 if self.twice(tile) else 1) * self.image_bytes(tile)

    def loads(self, tile: StemTile) -> tuple[int, int]:
        """How often a warp loads, and how many rounds of that there are: of whole loads all are under way at once, of
        single numbers each round waits for the one before."""
        high, line = self.lines(tile)
        if self.ahead is not None:
            return ceil(self.image_bytes(tile) / _LOAD / _THREADS), 1
        rows, long = (high * self.channels, line // self.channels) if self.planes else (high, line)
        each = ceil(long / _WARP)
        batch = 1 if each > _LOADS // 2 else _LOADS // each
        rounds = ceil(rows / (_THREADS // _WARP * batch))
        return rounds * batch * each, rounds

    def tiles(self, tile: StemTile) -> int:
        return self.images * ceil(self.made[0] / tile.rows) * ceil(self.made[1] / tile.columns)

    def blocks(self, tile: StemTile, gpu: Gpu) -> int:
        """That share the tiles: as many as the GPU has room for."""
        return min(self.tiles(tile), gpu.sms * occupancy(_THREADS, _REGISTERS, self.shared(tile), gpu))


def _stem(problem: KernelProblem) -> StemConv:
    op = problem.op
    assert isinstance(op, Conv)
    own, (y,) = op_operands(problem), problem.outputs
    x, weights = problem.inputs[own[0]], problem.inputs[own[1]]
    single = StemConv(
        x.shape[1], y.shape[1], _two(weights.shape[2:]), _two(op.strides), _two(op.pads_begin), _two(x.shape[2:]),
        _two(y.shape[2:]), x.shape[0], x.format.layout is Layout.ROW, x.format.dtype.nbytes, None, problem.nbytes,
        instructions(problem.epilogue),
    )  # fmt: skip
    return _whole(single) if x.format.dtype in (y.format.dtype, DType.F32) else single


def _whole(single: StemConv) -> StemConv:
    """The same with rows of whole loads, where they are some and the window is not too deep that way."""
    inner, each = 1 if single.planes else single.channels, _LOAD // single.itemsize
    whole = replace(single, ahead=-single.pads[1] * inner % each)
    suits = single.given[1] * inner % each == 0 and single.stride[1] * inner % 2 == 0 and whole.steps <= _MOST_STEPS
    return whole if suits else single


def _in(what: StemConv, tile: StemTile) -> StemConv:
    """The same for a tile: of single numbers, which are kept as the factor is, where its whole loads have no room."""
    if what.ahead is None or what.shared(tile) <= _STATIC:
        return what
    single = replace(what, ahead=None)
    suits = single.inner * single.stride[1] % 2 == 0 and single.steps <= _MOST_STEPS
    return single if suits else what


def _two(values: tuple[int, ...]) -> tuple[int, int]:
    height, width = values
    return height, width


# Fitted to 76 kernels on an H200 that read single numbers, off by 12% on average; what whole loads take is a guess,
# with which six kernels on an H100 were off by 12%.
# Instructions of a warp: for a load of single numbers and for one of 16 bytes, for each of a product, for a result and
# each of its activations', for a tile. Parts of the rate of instructions and of the bandwidth that are reached, what of
# the lesser of both shows, and how much longer a warp takes alone; seconds of a round of loads. The part of the rate of
# products, which no window that was timed is deep enough to wait for, is one too.
_SINGLE, _WHOLE, _PRODUCT, _RESULT, _FUNCTION, _TILE = 32.0, 22.0, 2.0, 2.0, 0.9, 122.0
_ISSUED, _REACHED, _SHOWN, _ALONE, _WAIT, _MULTIPLIED = 0.88, 0.84, 0.28, 2.0, 0.45e-6, 0.5


def _issued(what: StemConv, tile: StemTile) -> float:
    """Instructions of a warp for a tile."""
    eights, fragments = what.out // 8, ceil(tile.rows * tile.columns / _THREADS)
    left = 8 if what.ahead is None or what.itemsize == 2 else 24
    products = eights // what.together * what.steps * (left + 3 * what.together) * _PRODUCT
    results = 8 * eights * (_RESULT + _FUNCTION * what.functions)
    copies = what.loads(tile)[0] * (_SINGLE if what.ahead is None else _WHOLE)
    return copies + fragments * (products + results) + _TILE


def _seconds(what: StemConv, tile: StemTile, target: Target) -> float:
    """What the busiest multiprocessor's warps execute, or the tiles of a block one after the other; or memory."""
    gpu = gpu_of(target)
    blocks, tiles = what.blocks(tile, gpu), what.tiles(tile)
    each, issued = ceil(tiles / blocks), _issued(what, tile)
    # Four warps' instructions of 32 lanes at once.
    rate = target.rate("fp32") / 2 / gpu.sms / _THREADS * _ISSUED
    waits = 1 if what.twice(tile) else each * what.loads(tile)[1]
    busiest = each * ceil(blocks / gpu.sms)
    products = 2 * tile.rows * tile.columns * what.out * what.steps * _STEP
    multiplied = products / (target.rate("fp16") * gpu.warp_mma_share / gpu.sms * _MULTIPLIED)
    work = max(busiest * issued / rate, busiest * multiplied, each * _ALONE * issued / rate + waits * _WAIT)
    # Nothing is multiplied before the first tiles are there.
    first = 0 if what.ahead is None else min(what.nbytes, blocks * what.image_bytes(tile))
    begin, memory = (nbytes / (target.bandwidth * _REACHED) for nbytes in (first, what.nbytes - first))
    return target.launch_seconds + begin + max(work, memory) + _SHOWN * min(work, memory)


class Stem(TileKind[StemTile, StemConv]):
    """The kind of kernels for an image's first convolution."""

    def serves(self, problem: KernelProblem) -> bool:
        (first, *behind), x = problem.op.sequence, problem.inputs[0]
        return not behind and isinstance(first.op, Conv) and len(x.shape) == 4 and x.shape[1] <= _MOST_CHANNELS

    def read_tile(self, reader: Reader) -> StemTile:
        return StemTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        if (reason := conv.refuse(problem)) is not None:
            return reason
        op, y = problem.op, problem.outputs[0]
        assert isinstance(op, Conv)
        if max(op.dilations) > 1:
            return "reads undilated windows where an image has few channels"
        what = _stem(problem)
        if what.out % 8 != 0:
            return Reason("stores 8 channels at once, {} is no multiple", what.out)
        if what.inner * what.stride[1] % 2 != 0:
            return "windows over an image as it lies begin at even elements"
        if what.steps > _MOST_STEPS:
            return Reason("a window over an image as it lies has {} steps, at most {}", what.steps, _MOST_STEPS)
        if gpu.instruction("bf16" if y.format.dtype is DType.BF16 else "fp16") is None:
            return f"the GPU's tensor cores do not multiply {y.format.dtype.value}"
        return None

    def computed(self, problem: KernelProblem) -> StemConv:
        return _stem(problem)

    def tiles_for(self, what: StemConv, gpu: Gpu) -> tuple[tuple[StemTile, ...], str | None]:
        return TILES, None

    def refuse_tile(self, tile: StemTile, what: StemConv, gpu: Gpu) -> str | None:
        if tile.rows >= 2 * max(what.made[0], 4) or tile.columns >= 2 * max(what.made[1], 8):
            return Reason("half of its positions would be beyond the {}x{} of an image", *what.made)
        if tile.rows // 2 * (tile.columns // 8) % 2 != 0:
            return "warps have two fragments of eight positions of two rows"
        if (needed := _in(what, tile).shared(tile)) > _STATIC:
            return Reason("takes {} bytes of shared memory, at most {} are supported", needed, _STATIC)
        return refuse_shared(needed, gpu)

    def seconds(self, problem: KernelProblem, what: StemConv, candidate: Candidate, target: Target) -> float:
        tile = self.tile_of(candidate)
        return _seconds(_in(what, tile), tile, target)

    def group(self, tile: StemTile) -> str:
        return "images as they lie"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        """Single pixels, and rows of the residual, wherever they lie."""
        x, added, what = op_operands(problem)[0], residual(problem), _stem(problem)
        pixels = {x} if not what.planes and what.ahead is None else set[int]()
        return tuple(sorted(pixels if added is None else {*pixels, added}))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        own, added, tile = op_operands(problem), residual(problem), self.tile_of(candidate)
        what = _in(_stem(problem), tile)
        other, apart = ("nullptr", 0) if added is None else (at.inputs[added], at.input_pitch(added))
        shape = struct(
            f"{SPACE}::StemArguments",
            batch=what.images, height=what.given[0], width=what.given[1], out_h=what.made[0], out_w=what.made[1],
            above=what.pads[0], left=what.pads[1], x_row=at.input_pitch(own[0]) or what.channels,
            y_row=at.pitch(0) or what.out, residual_row=apart or what.out, blocks=what.blocks(tile, gpu_of(target)),
        )  # fmt: skip
        packed = struct(
            f"{SPACE}::StemFilter",
            outputs=what.out, channels=what.channels, rows=what.taps[0], taps=what.taps[1], steps=what.steps,
            planes=what.kept_planes, lead=what.lead, neighbours=what.neighbours,
        )  # fmt: skip
        member = f"{SPACE}::StemConv<{_cxx(problem, tile)}, {epilogue_type(problem)}>"
        numbers = (constant(at, each) for each in channels(problem))
        arguments = (shape, constant(at, own[1]), packed, constant(at, *own[2:]), epilogue_value(problem), *numbers)
        call = f"kernel.run(r, {at.inputs[own[0]]}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/plans/stem.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile = self.tile_of(candidate)
        text = (
            '#include "bolt_cutlass/units/stem_kernel.h"\n\n'
            f"template void {SPACE}::launch_stem(\n    {_cxx(problem, tile)},\n"
            f"    const {SPACE}::StemArguments&, const {epilogue_type(problem)}&, const bolt::Run&);\n"
        )
        return named_unit(text, _MEMORY_MB, f"conv{stage_words(problem)}, tile {tile}")


def _cxx(problem: KernelProblem, tile: StemTile) -> str:
    """`bolt::cutlass_kernels::StemTile<bolt::portable::f16, float, true, 3, 32, 3, 3, 2, 2, 3, 8, 32>`"""
    what, x = _in(_stem(problem), tile), problem.inputs[op_operands(problem)[0]]
    types = COMPUTED[problem.outputs[0].format.dtype], COMPUTED[x.format.dtype]
    ahead = -1 if what.ahead is None else what.ahead
    numbers = (what.channels, what.out, *what.taps, *what.stride, ahead, tile.rows, tile.columns)
    return f"{SPACE}::StemTile<{', '.join([*types, boolean(what.planes), *map(str, numbers)])}>"
