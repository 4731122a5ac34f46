"""Convolutions that store their results and an activation of them on Hopper: kernels of `wgmma.py` and `band.py` whose
threads store both.

Residual blocks that begin with an activation are so: a residual is stored for the sum behind the block, and the block's
first convolution reads an activation of it. HiFi-GAN's generators, encoders of pix2pix and WideResNets have such.
"""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.functors import ACTIVATIONS, instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import (
    epilogue_type,
    epilogue_value,
    refuse_channels,
    residual,
    stage_words,
    stages_type,
    stages_value,
)
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import FEW_SUMS, WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BAND_TILES, BandTile
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.apart import between_rows
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import within
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.chain import Kept
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target

_BOX = 4e-7
"""Seconds that a warpgroup takes longer for a box of 64 rows, which its threads store to both outputs. Fitted to six
kernels on an H200, off by 8%; six others, held out, by 13%, where they were by 44%."""


@dataclass(frozen=True)
class KeptTile:
    """A tile of either kind, of whose results an activation is stored too."""

    tile: WgmmaTile | BandTile

    @property
    def parameters(self) -> Named:
        return (*self.tile.parameters, ("kept", 1))

    @classmethod
    def read(cls, reader: Reader) -> KeptTile:
        if reader.number("kept") != 1:
            raise ValueError("a tile of two results says so")
        return cls(BandTile.read(reader) if reader.has("bands") else WgmmaTile.read(reader))

    def cxx(self, product: Product, gpu: Gpu) -> str:
        return f"{SPACE}::KeptTile<{self.tile.cxx(product, gpu)}>"

    def __str__(self) -> str:
        return f"{self.tile} of two results"


@dataclass(frozen=True)
class KeptProduct:
    """The convolution as a product; `functions` are instructions of both results, `nbytes` those of both."""

    product: Product
    functions: int
    nbytes: int


class KeptActivation(TileKind[KeptTile, KeptProduct]):
    """The kind of kernels for a convolution whose results are stored, and an activation of them."""

    def serves(self, problem: KernelProblem) -> bool:
        if type(problem.op) is not Kept:
            return False
        return [type(each.op) for each in problem.op.sequence] == [Conv, Activation]

    def read_tile(self, reader: Reader) -> KeptTile:
        return KeptTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        first = parts(problem)[0]
        if not gpu.warpgroup_mma:
            return "needs WGMMA"
        if {each.format for each in problem.outputs} != {first.outputs[0].format}:
            return "stores both results alike"
        if first.outputs[0].format.layout is not Layout.CHANNELS_LAST:
            return "stores images channels last"
        if (reason := conv.refuse(first) or refuse_channels(first)) is not None:
            return within("the convolution", reason)
        if problem.epilogue:
            return "another function follows the activation"
        if any(stage.op.function not in ACTIVATIONS for stage in _second(problem) if isinstance(stage.op, Activation)):
            return "the activation is no function of its kernels"
        product = conv.product_of(first)
        if product.widen is not None or product.n != first.outputs[0].shape[1]:
            return "windows have positions of whole loads"
        return None

    def computed(self, problem: KernelProblem) -> KeptProduct:
        first = parts(problem)[0]
        functions = instructions((*first.epilogue, *_second(problem)))
        return KeptProduct(conv.product_of(first), functions, problem.nbytes)

    def tiles_for(self, what: KeptProduct, gpu: Gpu) -> tuple[tuple[KeptTile, ...], str | None]:
        return _TILES, None

    def refuse_tile(self, tile: KeptTile, what: KeptProduct, gpu: Gpu) -> str | None:
        own, product = tile.tile, what.product
        return refuse_half(own.halves, product.dtype) or own.refuse(gpu, product) or own.refuse_whole(gpu, product)

    def seconds(self, problem: KernelProblem, what: KeptProduct, candidate: Candidate, target: Target) -> float:
        product = what.product
        work = Work(
            product.m, product.n, product.depth, product.taps, product.kernel == "Conv", what.nbytes,
            stride=product.step, functions=what.functions, residual=product.residual,
            box=_BOX, stores=2,
        )  # fmt: skip
        return self.tile_of(candidate).tile.seconds(product, work, target)

    def group(self, tile: KeptTile) -> str:
        return f"{tile.tile.group} of two results"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """The problem's own: nothing is padded or copied."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        first = parts(problem)[0]
        x, added = op_operands(first)[0], residual(first)
        return (x,) if added is None else tuple(sorted({x, added}))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        tile, first = self.tile_of(candidate), parts(problem)[0]
        own, added = op_operands(first), residual(first)
        product = conv.product_of(first).reading(first.inputs[own[0]], at.input_pitch(own[0]))
        both = self._epilogue(problem)
        apart = (("second_row", at.pitch(1)),) if at.pitch(1) else ()
        value = f"{both}{{{epilogue_value(first)}, {stages_value(_second(problem))}}}"
        arguments = (
            product.arguments((*between_rows(at, added), *apart)), product.source_value, constant(at, own[1]),
            product.weights, constant(at, *own[2:]), value,
        )  # fmt: skip
        member = f"{SPACE}::{product.kernel}<{tile.cxx(product, gpu_of(target))}, {both}, {product.source}>"
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run_both(r, {at.inputs[own[0]]}, {other}, {at.outputs[0]}, {at.outputs[1]});"
        return StepCode(("bolt_cutlass/plans/prepared.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile, first = self.tile_of(candidate), parts(problem)[0]
        product = conv.product_of(first)
        kind = product.kernel.lower()
        text = (
            f'#include "bolt_cutlass/units/{kind}_kept_kernel.h"\n\n'
            f"template void {SPACE}::launch_{kind}(\n    {tile.cxx(product, gpu_of(target))},\n"
            f"    const {SPACE}::{product.kernel}Arguments&,\n    const {self._epilogue(problem)}&, void*);\n"
        )
        return named_unit(text, tile.tile.memory_mb, f"{kind} tile {tile}{stage_words(first)}")

    @staticmethod
    def _epilogue(problem: KernelProblem) -> str:
        """The C++ type of what follows the product."""
        return f"{SPACE}::KeptEpilogue<{epilogue_type(parts(problem)[0])}, {stages_type(_second(problem))}>"


def _second(problem: KernelProblem) -> tuple[EpilogueOp, ...]:
    """What is computed of the first result, as a stage."""
    return (EpilogueOp(problem.op.sequence[-1].op),)


_TILES = (
    *(KeptTile(tile) for tile in FEW_SUMS if tile.cluster == (1, 1) and not tile.single),
    *(KeptTile(tile) for tile in BAND_TILES if tile.cluster == 1),
)
