"""A problem as the kernels compute it: a matrix product, or one over windows of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import element
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import image_numbers, residual
from bolt_build.families.cutlass.problems.fold import Fold, spread
from bolt_build.families.reason import Reason

ALIGNMENT = 8
"""Half-precision elements in the 16 bytes that the kernels load at once."""

_SPACE = "bolt::cutlass_kernels"
_X_STRIDES = ("x_image", "x_row", "x_column")
"""Fields of `ConvArguments`."""


@dataclass(frozen=True)
class Widen:
    """A copy of the input, made before the product, whose channels and columns are padded with zeros.

    `strides` are those of image, row, column and channel in the input, in elements. `element` is the C++ type of the
    input, `to` the type of the copy.
    """

    batch: int
    height: int
    width: int
    channels: int
    strides: tuple[int, int, int, int]
    to_width: int
    to_channels: int
    left: int
    element: str
    to: DType = DType.F16

    @property
    def nbytes(self) -> int:
        """Bytes of the copy."""
        return self.batch * self.height * self.to_width * self.to_channels * 2

    @property
    def form(self) -> str:
        """In a few words."""
        return f"{self.to.value}/channels_last of {self.to_channels} channels"

    def apart(self, row: int, pitch: int) -> Widen:
        """The same of an image whose pixels, of `row` channels, lie `pitch` elements apart."""
        return replace(self, strides=spread(self.strides, row, pitch))

    @property
    def text(self) -> str:
        image, row, column, channel = self.strides
        value = struct(
            f"{_SPACE}::Widen",
            batch=self.batch,
            height=self.height,
            width=self.width,
            channels=self.channels,
            image=image,
            row=row,
            column=column,
            channel=channel,
            to_width=self.to_width,
            to_channels=self.to_channels,
            left=self.left,
        )
        return f"{self.source}{{{value}}}"

    @property
    def source(self) -> str:
        return f"{_SPACE}::Widened<{self.element}{element(self.to)}>"


@dataclass(frozen=True)
class Product:
    """`kernel` is "Gemm" or "Conv" (a class of prepared.h); `shape` are the fields of its C++ arguments that do not
    depend on the candidate, `weights` says how they are packed.

    `depth` counts the padded channels of one tap of the window, `reach` the positions from its corner to its last tap,
    or to the image where padding lies between.
    """

    kernel: str
    m: int
    n: int
    depth: int
    taps: int
    shape: tuple[tuple[str, int], ...]
    weights: str
    widen: Widen | Fold | None
    reach: int = 0
    residual: bool = False
    wide: bool = False
    """Results in fp32: of split-K's partial sums, and of tiles whose kernels store such."""
    dtype: DType = DType.F16
    """Of both factors, of the residual and, where it is not `wide`, of the results."""
    x_row: int = 0
    """Elements from a row of a matrix on the left to the next, 0 where they are dense."""
    images: int = 0
    """That the rows are of where kernels leave the means of each, 0 where they leave none."""

    @cached_property
    def access(self) -> int:
        """Elements that one access to the output takes: what divides a row of it."""
        return next(size for size in (8, 4, 2, 1) if self.n % size == 0)

    @property
    def element(self) -> str:
        """What C++ types of tiles end with that do not compute in f16: `, bolt::portable::bf16`."""
        return element(self.dtype)

    @property
    def stored(self) -> str:
        """The same of what split-K's sums are stored as: `, float`."""
        return ", float" if self.wide else self.element

    @cached_property
    def step(self) -> int:
        """Positions of the input from one window to the next."""
        return max((value for name, value in self.shape if name.startswith("stride_")), default=1)

    def arguments(self, settings: Sequence[tuple[str, int | str]]) -> str:
        """Its C++ arguments: the shape, and what differs from the defaults of the run-time settings."""
        apart = {"x_row": self.x_row} if self.x_row else {}
        return struct(f"{_SPACE}::{self.kernel}Arguments", **dict(self.shape), **dict(settings), **apart)

    def reading(self, x: Operand, pitch: int) -> Product:
        """The same of an input whose rows lie `pitch` elements apart (0: dense), where `apart.py` says it can."""
        if not pitch:
            return self
        if self.widen is not None:
            return replace(self, widen=self.widen.apart(x.row, pitch))
        if self.kernel == "Gemm":
            return replace(self, x_row=pitch)
        apart = {name: value // x.row * pitch for name, value in self.shape if name in _X_STRIDES}
        return replace(self, shape=tuple((name, apart.get(name, value)) for name, value in self.shape))

    @property
    def source(self) -> str:
        """C++ type of what brings the input to the kernel."""
        return f"{_SPACE}::AsItIs" if self.widen is None else self.widen.source

    @property
    def source_value(self) -> str:
        return f"{_SPACE}::AsItIs{{}}" if self.widen is None else self.widen.text


@dataclass(frozen=True)
class Work:
    """A product y[m, n] over taps times depth: `windowed` where x is gathered by windows, `nbytes` what must move.

    `slices` of the depth are computed apart. Windows lie `stride` positions from each other. `functions` are the
    instructions that activations take of a result, `between` those in front of a second product. Of the n columns
    `sides` become one of what is stored. `residual`: it is added to results. `box`: seconds that a warpgroup takes
    longer for each box of 64 rows whose results its threads store, which TMA would store with one instruction.
    `stores`: outputs that each result goes to.
    """

    m: int
    n: int
    depth: int
    taps: int
    windowed: bool
    nbytes: int
    slices: int = 1
    stride: int = 1
    functions: int = 0
    between: int = 0
    sides: int = 1
    residual: bool = False
    box: float = 0.0
    stores: int = 1

    def by_threads(self, m: int, n: int, warpgroups: int) -> float:
        """Seconds that the threads of so many warpgroups take longer over a tile of so many rows and columns."""
        if self.box == 0.0:
            return 0.0
        width = next(width for width in (64, 32, 16) if n % width == 0)
        return self.box * (m // (64 * warpgroups)) * (n // width)


_OF_IMAGES = 6
"""Instructions that a number of the image takes of a result. Fitted to what the 12 gated products of `gate_kernels.py`
took on an H200 over the same ones with a residual alone, before rows of one image shared their loads: off by 7%."""

Products = Callable[[KernelProblem, int], Product]
"""The product that kernels compute which load so many elements at once: channels are padded to a multiple."""


def work(problem: KernelProblem, product: Product) -> Work:
    """What the prediction needs; the copy of the input is not part of it."""
    own = op_operands(problem)
    x = problem.inputs[own[0]].nbytes if product.widen is None else product.widen.nbytes
    weights = product.n * product.taps * product.depth * 2
    y = problem.outputs[0].nbytes * (1 if residual(problem) is None else 2)
    functions = instructions(problem.epilogue) + (0 if image_numbers(problem) is None else _OF_IMAGES)
    return Work(
        product.m, product.n, product.depth, product.taps, product.kernel == "Conv", x + weights + y,
        stride=product.step, functions=functions, residual=residual(problem) is not None,
    )  # fmt: skip


def narrow_loads(channels: int) -> int | None:
    """Elements of the widest load that suits rows of so many channels as they are, where those are no whole loads; None
    where they are, and for odd numbers: threads copy 4 bytes at least."""
    return next((size for size in (4, 2) if channels % size == 0), None) if channels % ALIGNMENT else None


def aligned(extent: int, to: int = ALIGNMENT) -> int:
    """The next multiple."""
    return -(-extent // to) * to


def too_large(product: Product, problem: KernelProblem) -> str | None:
    """A reason where the kernels' 32-bit offsets do not reach: 2 GiB a tensor, their views of the input included."""
    copy = 0 if product.widen is None else product.widen.nbytes // 2
    views = (product.m * product.depth, product.n * product.taps * product.depth, product.m * product.n, copy)
    largest = max(*views, *(prod(operand.shape) for operand in problem.inputs))
    return (
        Reason("a tensor of {} bytes is beyond the reach of 32-bit offsets", 2 * largest)
        if 2 * largest >= 1 << 31
        else None
    )
