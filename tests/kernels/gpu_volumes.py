"""Windows over several depths of volumes, which kernels read where they lie, as they are tried on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU
from gpu_channels import has
from gpu_harness import TARGET, Trial
from gpu_products import RESIDUAL, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp, Layout, TensorType
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack
from bolt_build.graph.ops.products.chain import Chain


def volume(
    label: str, x: tuple[int, ...], filters: int, kernel: tuple[int, int, int], stride: tuple[int, int] = (1, 1), *,
    begin: int = 1, extent: int = 0, dilation: int = 1, epilogue: tuple[EpilogueOp, ...] = (RELU,), bias: bool = True,
) -> tuple[Layer, ProposedStep]:  # fmt: skip
    """A convolution of volumes `x` with windows of `kernel` depths, rows and columns, `stride` depths and pixels apart,
    as a stack of depths, images of these, and a convolution of them. `begin` depths of zeros lie in front, `extent`
    depths leave it, unless said as many as for zeros behind as in front."""
    images, given, depths, *pixels = x
    made = extent or (depths + 2 * begin - (kernel[0] - 1) * dilation - 1) // stride[0] + 1
    stack = Stack(2, kernel[0], stride[0], dilation, begin, made, given * kernel[0])
    flat = conv(
        label, (images * made, given * kernel[0], *pixels), filters, kernel[1:], stride[1], epilogue=epilogue, bias=bias
    )
    op = Chain(Chain(stack, 1, (), FoldDepth()), 1, (), flat.op)
    layer = replace(flat, op=op, inputs=(Input(x), *flat.inputs[1:]))
    last = TensorFormat(DType.F16, Layout.CHANNELS_LAST)
    residual = {stage.operand for stage in epilogue}
    inputs = tuple(
        Operand(each.shape, last if index == 0 or index in residual else _constant(index), constant=each.constant)
        for index, each in enumerate(layer.inputs)
    )
    (output,) = op.infer(
        [TensorType(DType.F16, each.shape) for index, each in enumerate(inputs) if index not in residual]
    )
    problem = KernelProblem(op, inputs, (Operand(output.shape, last),), epilogue, DType.F32, TARGET.name)
    names = tuple(f"x{index}" for index in range(len(inputs)))
    return layer, ProposedStep(
        problem, names, ("y",), reads_apart=(0, *(each for each in residual if each is not None))
    )


def _constant(index: int) -> TensorFormat:
    return TensorFormat(DType.F16 if index == 1 else DType.F32, Layout.ROW)


def of_volume(made: tuple[Layer, ProposedStep], *wanted: Sequence[str], large: bool = False) -> list[Trial]:
    """The first candidate of each that states these words."""
    layer, step = made
    found, _ = Cutlass().candidates(step.problem, TARGET)
    return [Trial(layer, step, next(filter(has(*words), found)), large=large) for words in wanted]


def volume_trials() -> list[Trial]:
    """Depths that begin and end within a tile, apart and with gaps; pixels of the volume further apart than dense."""
    every = (("m=64", "warpgroups=pingpong"), ("bands", "warpgroups=pingpong"), ("bands", "warpgroups=cooperative"))
    found = of_volume(volume("volume", (2, 64, 5, 13, 11), 64, (3, 3, 3)), *every, ("warpgroups=pairs",))
    found += of_volume(volume("volume-residual", (2, 32, 4, 9, 10), 40, (3, 3, 3), epilogue=RESIDUAL), *every[:2])
    found += of_volume(volume("volume-causal", (1, 64, 5, 12, 12), 64, (3, 3, 3), begin=2, extent=5), *every[1:2])
    found += of_volume(volume("volume-apart", (2, 64, 7, 14, 15), 72, (3, 3, 3), (2, 2)), *every[:2])
    found += of_volume(
        volume("volume-gaps", (1, 64, 9, 9, 8), 64, (2, 3, 3), begin=2, dilation=3, bias=False), *every[:2]
    )
    found += of_volume(volume("volume-short", (1, 96, 4, 11, 9), 32, (3, 3, 3)), ("bands", "k=32"))
    return [*found, *(replace(trial, between=16) for trial in found[:2])]
