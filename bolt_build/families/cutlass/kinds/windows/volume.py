"""Windows over several depths of volumes on Hopper: kernels of `wgmma.py` and `band.py` that read each depth where it
lies.

The passes make a convolution over images of one over volumes: its channels are those of all depths that a window
reaches. A step that copies these side by side is in front of it then. Here TMA reads the volume itself, whose axes it
knows: a step of the product has channels of one depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.epilogue import EpilogueCode, residual
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile
from bolt_build.families.cutlass.kinds.windows.conv_code import conv_step, conv_unit
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

_LONGEST = 64
"""Channels of a run whose rows fill the swizzle."""
_CORNERS, _DEPTHS, _STRIDES = 15, 31, 8
"""TMA's limits for windows over three axes: how far corners lie from the volume's, how far depths reach, strides."""


@dataclass(frozen=True)
class VolumeTile:
    """A tile of either kind, whose steps have channels of one depth."""

    tile: WgmmaTile | BandTile

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("volume", 1))

    @classmethod
    def read(cls, reader: Reader) -> VolumeTile:
        if reader.number("volume") != 1:
            raise ValueError("a tile of volumes says so")
        return cls(BandTile.read(reader) if reader.has("bands") else WgmmaTile.read(reader))

    def cxx(self, product: Product, gpu: Gpu) -> str:
        return f"{SPACE}::VolumeTile<{self.tile.cxx(product, gpu)}>"

    def __str__(self) -> str:
        return f"{self.tile} of volumes"


@dataclass(frozen=True)
class VolumeProduct:
    """A convolution over images that are depths of a volume, as a product; `channels` are those of a depth."""

    product: Product
    channels: int
    functions: int
    nbytes: int


class Volumes(TileKind[VolumeTile, VolumeProduct]):
    """The kind of kernels for a stack of depths and the convolution that alone reads it."""

    def serves(self, problem: KernelProblem) -> bool:
        return [type(each.op) for each in problem.op.sequence] == [Stack, FoldDepth, Conv]

    def read_tile(self, reader: Reader) -> VolumeTile:
        return VolumeTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        stack, _, last = parts(problem)
        op, x = stack.op, problem.inputs[0]
        assert isinstance(op, Stack)
        if not gpu.warpgroup_mma:
            return "needs WGMMA"
        if op.axis != 2 or len(x.shape) != 5 or op.channels != x.shape[1] * op.count:
            return "channels of the stack are those of depths, and no others"
        if x.format.layout is not Layout.CHANNELS_LAST or x.format.dtype is not problem.outputs[0].format.dtype:
            return f"reads {problem.outputs[0].format}, not {x.format}"
        if (reason := conv.refuse(last)) is not None:
            return within("the convolution", reason)
        product = conv.product_of(last)
        if product.kernel != "Conv" or product.widen is not None:
            return "windows over volumes have several positions of whole loads"
        if product.access != 8:
            return Reason("stores 8 columns at once, {} is no multiple", product.n)
        return _refuse_reach(op, x.shape[2], product)

    def computed(self, problem: KernelProblem) -> VolumeProduct:
        product = conv.product_of(parts(problem)[-1])
        return VolumeProduct(product, problem.inputs[0].shape[1], instructions(problem.epilogue), problem.nbytes)

    def tiles_for(self, what: VolumeProduct, gpu: Gpu) -> tuple[tuple[VolumeTile, ...], str | None]:
        return _TILES, None

    def refuse_tile(self, tile: VolumeTile, what: VolumeProduct, gpu: Gpu) -> str | None:
        own = tile.tile
        if what.channels % own.k:
            return Reason("a step has {} channels of one depth, {} are no multiple", own.k, what.channels)
        # Shorter runs are for channels that longer ones do not divide.
        product = replace(what.product, depth=what.channels if what.channels % _LONGEST == 0 else own.k)
        return refuse_half(own.halves, product.dtype) or own.refuse(gpu, product) or own.refuse_whole(gpu, product)

    def seconds(self, problem: KernelProblem, what: VolumeProduct, candidate: Candidate, target: Target) -> float:
        product = what.product
        work = Work(
            product.m, product.n, product.depth, product.taps, True, what.nbytes, stride=product.step,
            functions=what.functions, residual=product.residual,
        )  # fmt: skip
        return self.tile_of(candidate).tile.seconds(product, work, target)

    def group(self, tile: VolumeTile) -> str:
        return f"{tile.tile.group} of volumes"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        added = residual(problem)
        return (0,) if added is None else (0, added)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile = self.tile_of(candidate)
        product = _of_volume(problem, at.input_pitch(0))
        stack = parts(problem)[0].op
        assert isinstance(stack, Stack)
        packed = struct(
            f"{SPACE}::VolumeFilter",
            outputs=product.n, channels=problem.inputs[0].shape[1], depths=stack.count, taps=product.taps,
        )  # fmt: skip
        fields = (_depths(problem, stack, at.input_pitch(0)),)
        cxx = tile.cxx(product, gpu_of(target))
        return conv_step(problem, product, cxx, packed, at, fields, self.epilogue(problem))

    def epilogue(self, problem: KernelProblem) -> EpilogueCode:
        """What follows the convolution."""
        return EpilogueCode.of(problem)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile = self.tile_of(candidate)
        cxx = tile.cxx(conv.product_of(parts(problem)[-1]), gpu_of(target))
        epilogue = self.epilogue(problem)
        return conv_unit(problem, "conv_volume_kernel.h", cxx, tile.tile.memory_mb, str(tile), epilogue=epilogue)


def _refuse_reach(op: Stack, depths: int, product: Product) -> str | None:
    """Why TMA does not reach the windows, None where it does."""
    last = (op.extent - 1) * op.stride + 1 - op.begin - depths
    if max(product.reach, op.begin, abs(last)) > _CORNERS:
        return Reason("windows reach over more than the {} positions that TMA takes of volumes", _CORNERS)
    if (op.count - 1) * op.dilation > _DEPTHS:
        return Reason("depths reach over {} positions, TMA takes {} at most", (op.count - 1) * op.dilation, _DEPTHS)
    if max(op.stride, product.step) > _STRIDES:
        return Reason("the stride is {}, TMA takes {} at most", max(op.stride, product.step), _STRIDES)
    return None


def _of_volume(problem: KernelProblem, pitch: int) -> Product:
    """The product, with the strides of the volume, whose pixels lie `pitch` elements apart (0: dense)."""
    product = conv.product_of(parts(problem)[-1])
    (_, _, depths, rows, columns), row = problem.inputs[0].shape, _row(problem, pitch)
    strides = {"x_image": depths * rows * columns * row, "x_row": columns * row, "x_column": row}
    return replace(product, shape=tuple((name, strides.get(name, value)) for name, value in product.shape))


def _row(problem: KernelProblem, pitch: int) -> int:
    return pitch or problem.inputs[0].shape[1]


def _depths(problem: KernelProblem, op: Stack, pitch: int) -> tuple[str, str]:
    """The field of the C++ arguments that says which depths are channels."""
    _, _, depths, rows, columns = problem.inputs[0].shape
    value = struct(
        f"{SPACE}::Depths",
        given=depths, made=op.extent, taps=op.count, stride=op.stride, dilation=op.dilation, pad=op.begin,
        x_depth=rows * columns * _row(problem, pitch),
    )  # fmt: skip
    return "depths", value


def suits(tile: WgmmaTile | BandTile) -> bool:
    """Whether there are kernels of volumes with such a tile: of blocks that read by themselves."""
    if isinstance(tile, BandTile):
        return tile.cluster == 1
    return tile.cluster == (1, 1) and not tile.single


_TILES = (
    *(VolumeTile(tile) for tile in FEW_SUMS if suits(tile)),
    *(VolumeTile(tile) for tile in BAND_TILES if suits(tile)),
)
