"""Convolutions whose results become pixels of a larger image on Hopper: kernels of `wgmma.py` and `band.py` that store
them where they lie there.

Pixel shuffles and transposed convolutions are so: their passes make a convolution and a step that moves elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import prod

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile
from bolt_build.families.cutlass.kinds.windows.conv_code import conv_step, conv_unit
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.rearrange import Rearrange, axes_of
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

_BOX = 4.5e-7
"""Seconds that a warpgroup takes longer for a box of 64 rows, as its threads find the place of each pixel and store it.
Fitted to 12 kernels on an H200, off by 15%, and by 59% without it."""


@dataclass(frozen=True)
class Shuffle:
    """Pixels that the channels of a position become: `down` rows of `across`, of `channels` each, in this order. The
    larger image has `made` rows and columns, which begin at `first` of all that there would be; `given` has the
    positions."""

    down: int
    across: int
    channels: int
    given: tuple[int, int]
    made: tuple[int, int]
    first: tuple[int, int]


@dataclass(frozen=True)
class ShuffledTile:
    """A tile of either kind, whose results are stored as pixels."""

    tile: WgmmaTile | BandTile

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("shuffled", 1))

    @classmethod
    def read(cls, reader: Reader) -> ShuffledTile:
        if reader.number("shuffled") != 1:
            raise ValueError("a tile of shuffled pixels says so")
        return cls(BandTile.read(reader) if reader.has("bands") else WgmmaTile.read(reader))

    def cxx(self, product: Product, gpu: Gpu) -> str:
        return f"{SPACE}::ShuffledTile<{self.tile.cxx(product, gpu)}>"

    def __str__(self) -> str:
        return f"{self.tile} of shuffled pixels"


@dataclass(frozen=True)
class ShuffledProduct:
    """The convolution as a product, and where its results lie."""

    product: Product
    functions: int
    nbytes: int


class Shuffled(TileKind[ShuffledTile, ShuffledProduct]):
    """The kind of kernels for a convolution and the movement of its channels between pixels."""

    def serves(self, problem: KernelProblem) -> bool:
        return [type(each.op) for each in problem.op.sequence] == [Conv, Rearrange]

    def read_tile(self, reader: Reader) -> ShuffledTile:
        return ShuffledTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        first, last = parts(problem)
        if not gpu.warpgroup_mma:
            return "needs WGMMA"
        if last.outputs[0].format.layout is not Layout.CHANNELS_LAST:
            return "stores pixels channels last"
        if (reason := conv.refuse(first)) is not None:
            return within("the convolution", reason)
        if any(stage.operand is not None for stage in first.epilogue):
            return "another tensor joins in between"
        if problem.epilogue:
            return "another function follows the movement"
        shuffle = shuffle_of(last)
        if shuffle is None:
            return "moves no channels between pixels alone, each a run of channels"
        if shuffle.channels % ALIGNMENT:
            return Reason("stores {} channels of a pixel at once, {} are no multiple", ALIGNMENT, shuffle.channels)
        product = conv.product_of(first)
        if product.widen is not None or product.n != first.outputs[0].shape[1]:
            return "windows have positions of whole loads"
        return None

    def computed(self, problem: KernelProblem) -> ShuffledProduct:
        first = parts(problem)[0]
        return ShuffledProduct(conv.product_of(first), instructions(first.epilogue), problem.nbytes)

    def tiles_for(self, what: ShuffledProduct, gpu: Gpu) -> tuple[tuple[ShuffledTile, ...], str | None]:
        return _TILES, None

    def refuse_tile(self, tile: ShuffledTile, what: ShuffledProduct, gpu: Gpu) -> str | None:
        own, product = tile.tile, what.product
        return refuse_half(own.halves, product.dtype) or own.refuse(gpu, product) or own.refuse_whole(gpu, product)

    def seconds(self, problem: KernelProblem, what: ShuffledProduct, candidate: Candidate, target: Target) -> float:
        product = what.product
        work = Work(
            product.m, product.n, product.depth, product.taps, product.kernel == "Conv", what.nbytes,
            stride=product.step, functions=what.functions, box=_BOX,
        )  # fmt: skip
        return self.tile_of(candidate).tile.seconds(product, work, target)

    def group(self, tile: ShuffledTile) -> str:
        return f"{tile.tile.group} of shuffled pixels"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return (op_operands(parts(problem)[0])[0],)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, (first, last) = self.tile_of(candidate), parts(problem)
        x = op_operands(first)[0]
        product, shuffle = conv.product_of(first).reading(first.inputs[x], at.input_pitch(x)), shuffle_of(last)
        assert shuffle is not None
        value = struct(
            f"{SPACE}::Shuffle",
            height=shuffle.given[0], width=shuffle.given[1], across=shuffle.across, channels=shuffle.channels,
            made_h=shuffle.made[0], made_w=shuffle.made[1], first_h=shuffle.first[0], first_w=shuffle.first[1],
        )  # fmt: skip
        return conv_step(
            first, product, tile.cxx(product, gpu_of(target)), product.weights, at, (("shuffle", value),)
        )  # fmt: skip

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        first, tile = parts(problem)[0], self.tile_of(candidate)
        product = conv.product_of(first)
        cxx, header = tile.cxx(product, gpu_of(target)), f"{product.kernel.lower()}_shuffled_kernel.h"
        return conv_unit(first, header, cxx, tile.tile.memory_mb, str(tile), product.kernel)


def shuffle_of(problem: KernelProblem) -> Shuffle | None:
    """The pixels that channels become; None where they become something else, or are no runs of channels."""
    op, given = problem.op, problem.inputs[0].shape
    assert isinstance(op, Rearrange)
    cut, joined = axes_of(given, op.split), op.joined
    if cut is None or joined is None or len(cut) != len(joined) or len(given) not in (3, 4):
        return None
    images, channels, *pixels = ([axis for axis in group if op.split[axis] > 1] for group in cut)
    made = [[axis for axis in group if op.split[axis] > 1] for group in joined]
    # Steps of a row or a column, outermost first, lie in front of a pixel's channels, and behind those of the image.
    steps = [[axis for axis in group if axis in channels] for group in made[2:]]
    whole = [[*own, *step] for own, step in zip(pixels, steps, strict=True)]
    if made[:1] != [images] or made[2:] != whole or [*chain.from_iterable(steps), *made[1]] != channels:
        return None
    if op.begin or op.shape[1] != op.whole[1]:
        return None

    sides = [prod(op.split[axis] for axis in step) for step in steps]
    ones = (1,) * (4 - len(given))
    return Shuffle(
        (*ones, *sides)[0], sides[-1], op.whole[1], _two((*ones, *given[2:])), _two((*ones, *op.shape[2:])),
        _two((*(0 for _ in ones), *(op.first or (0,) * len(sides)))),
    )  # fmt: skip


def _two(values: tuple[int, ...]) -> tuple[int, int]:
    return values[0], values[1]


_TILES = (
    *(ShuffledTile(tile) for tile in FEW_SUMS if tile.cluster == (1, 1) and not tile.single),
    *(ShuffledTile(tile) for tile in BAND_TILES if tile.cluster == 1),
)
