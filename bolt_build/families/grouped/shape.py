"""A problem as the kernels compute it: extents, the window, groups; and which problems are none of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED, HALVES, element
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.common.functors import TRANSCENDENTAL
from bolt_build.families.common.problems import op_operands
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.conv import Conv

SPACE = "bolt::grouped"
_TRANSCENDENTAL = 5
"""Operations that a power of two and a reciprocal count as."""
_WASTED = {
    2: "over half of the positions would be beyond the {}x{} of an image",
    3: "two thirds of the positions would be beyond the {}x{} of an image",
}


@dataclass(frozen=True)
class Depths:
    """The third axis of a convolution over volumes, in front of rows and columns."""

    extent: int
    out: int
    kernel: int
    stride: int
    dilation: int
    pad: int


@dataclass(frozen=True)
class Shape:
    """A convolution over rows and columns; one over a line has one row, one over volumes has `depths` too. Pairs are
    heights and widths.

    `nbytes` are all that must move once, `input_bytes` those of the input; `epilogue` counts operations a result behind
    the sum. `dtype` is the type of inputs, weights and results.
    """

    batch: int
    extent: tuple[int, int]
    channels: int
    out: tuple[int, int]
    filters: int
    groups: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int]
    nbytes: int
    input_bytes: int
    epilogue: int
    dtype: DType = DType.F16
    depths: Depths | None = None

    @property
    def element(self) -> str:
        """What C++ types of tiles end with that do not compute in f16: `, bolt::portable::bf16`."""
        return element(self.dtype)

    @cached_property
    def of_group(self) -> tuple[int, int]:
        """Channels and results of a group."""
        return self.channels // self.groups, self.filters // self.groups

    @cached_property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1] * (self.depths.kernel if self.depths else 1)

    @property
    def window(self) -> str:
        """`bolt::grouped::Window<3, 3, 1, 1, 1, 1>`"""
        return f"{SPACE}::Window<{', '.join(map(str, (*self.kernel, *self.stride, *self.dilation)))}>"

    def halo(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the input that a tile of the output reads."""
        (high, wide), (down, across), (gap, beside) = self.kernel, self.stride, self.dilation
        return (rows - 1) * down + (high - 1) * gap + 1, (columns - 1) * across + (wide - 1) * beside + 1

    def tiles(self, rows: int, columns: int) -> int:
        """Tiles of all images."""
        return self.batch * ceil(self.out[0] / rows) * ceil(self.out[1] / columns)

    def waste(self, rows: int, columns: int) -> float:
        """Positions that tiles compute, for each that there is."""
        return self.tiles(rows, columns) * rows * columns / (self.batch * prod(self.out))

    def refuse_waste(self, rows: int, columns: int, most: int = 2) -> str | None:
        """Why tiles of such an extent would compute more than `most` (2 or 3) positions for each that there is, None
        where they do not."""
        if self.waste(rows, columns) <= most:
            return None
        return Reason(_WASTED[most], *self.out)

    @property
    def flops_of_singles(self) -> int:
        """Operations of a convolution whose filters have one channel each."""
        positions = self.batch * self.out[0] * self.out[1] * (self.depths.out if self.depths else 1)
        return 2 * positions * self.filters * self.taps

    @property
    def arguments(self) -> dict[str, int]:
        """Fields of the kernel's C++ arguments that do not depend on the candidate."""
        return {
            "batch": self.batch, "height": self.extent[0], "width": self.extent[1], "channels": self.channels,
            "out_h": self.out[0], "out_w": self.out[1], "out_channels": self.filters,
            "pad_h": self.pads[0], "pad_w": self.pads[1],
        }  # fmt: skip


def planes(shape: Shape, to_outputs: int) -> tuple[str, int]:
    """How kernels want weights of filters of one channel each: planes of so many results, those behind the last one
    zeros; as C++, and the number of biases."""
    return struct(f"{SPACE}::Planes", outputs=shape.filters, taps=shape.taps, to_outputs=to_outputs), to_outputs


def refuse(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the convolution."""
    op = problem.op
    assert isinstance(op, Conv)
    y = problem.outputs[0]
    if op.groups == 1:
        return "convolves groups of channels apart, here is but one"
    if len(y.shape) not in (3, 4, 5):
        return Reason("convolves over one to three spatial axes, not {}", len(y.shape) - 2)
    if len(y.shape) == 5 and not problem.inputs[op_operands(problem)[0]].shape[1] == y.shape[1] == op.groups:
        return "convolves over three axes where each channel has one filter, of its own"
    if (reason := refuse_tensors(problem)) is not None:
        return reason
    for operand in problem.inputs:
        if operand.format.dtype not in COMPUTED:
            return f"computes with {', '.join(each.value for each in COMPUTED)}, not with {operand.format.dtype.value}"
    return refuse_stages(problem, axis=1)


def refuse_tensors(problem: KernelProblem) -> str | None:
    """Why no kernel of this family reads and writes the tensors of a convolution, None where one does."""
    own = op_operands(problem)
    x, weights, y = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    if not all(problem.inputs[index].constant for index in own[1:]):
        return "weights and bias must be constants, to be packed when the engine loads"
    for operand in (x, weights, y):
        if operand.format.dtype not in HALVES:
            return f"takes tensors in f16 or bf16, not in {operand.format.dtype.value}"
        if operand.format.dtype is not y.format.dtype:
            return f"stores {y.format.dtype.value} where it reads that, not {operand.format.dtype.value}"
    if x.format.layout is not Layout.CHANNELS_LAST or y.format.layout is not Layout.CHANNELS_LAST:
        return "reads and writes channels-last tensors alone"
    if (largest := max(prod(operand.shape) for operand in (x, y))) >= 1 << 31:
        return Reason("a tensor of {} elements is beyond the reach of 32-bit indices", largest)
    return None


def _two(values: tuple[int, ...], fill: int) -> tuple[int, int]:
    """Height and width of one to three spatial attributes."""
    return (fill, values[0]) if len(values) == 1 else (values[-2], values[-1])


def shape_of(problem: KernelProblem) -> Shape:
    """The shape of a problem that `refuse` does not refuse."""
    op = problem.op
    assert isinstance(op, Conv)
    own = op_operands(problem)
    x, weights, y = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    depths = None
    if len(y.shape) == 5:
        first = (op.strides[0], op.dilations[0], op.pads_begin[0])
        depths = Depths(x.shape[2], y.shape[2], weights.shape[2], *first)
    return Shape(
        x.shape[0], _two(x.shape[2:], 1), x.shape[1], _two(y.shape[2:], 1), y.shape[1], op.groups,
        _two(weights.shape[2:], 1), _two(op.strides, 1), _two(op.dilations, 1), _two(op.pads_begin, 0),
        problem.nbytes, x.nbytes, 4 + epilogue_operations(problem), y.format.dtype, depths,
    )  # fmt: skip


def epilogue_operations(problem: KernelProblem, transcendental: int = _TRANSCENDENTAL) -> int:
    """Of each result, behind the sum, where a power of two and a reciprocal count as `transcendental`."""
    functions = [stage.op.function for stage in problem.epilogue if isinstance(stage.op, Activation)]
    return 2 * len(problem.epilogue) + transcendental * sum(function in TRANSCENDENTAL for function in functions)


def wide(*values: int) -> int:
    """Elements of the widest access of up to 16 bytes that suits rows of all these lengths."""
    return next(size for size in (8, 4, 2, 1) if all(value % size == 0 for value in values))


def aligned(value: int, to: int = 8) -> int:
    """The next multiple."""
    return -(-value // to) * to
