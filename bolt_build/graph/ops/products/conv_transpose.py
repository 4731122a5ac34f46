"""Transposed convolution, as a plain one.

An output cell is made of every stride-th tap of the kernel. The cells of one phase (a position modulo the strides) are
a convolution with stride 1 over the input, with those taps in reverse. All phases together are one such convolution
with their product times as many filters, whose channels are then moved between the cells. So every kernel for
convolutions serves, nothing is multiplied with inserted zeros, and at stride 1 nothing is moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: `taps` along the kernel with zeros between them as `spacing` leaves them, `begin` cells cut off
    in front of the whole result, `out` cells kept."""

    extent: int
    stride: int
    taps: int
    spacing: int
    begin: int
    out: int

    @property
    def length(self) -> int:
        """Taps with the zeros between them, where phases would have taps at different distances otherwise."""
        return (self.taps - 1) * self.spacing + 1 if self.stride > 1 else self.taps

    @property
    def cells(self) -> int:
        """Taps of each phase."""
        return -(-self.length // self.stride)

    @property
    def missing(self) -> int:
        """Taps of zeros that make the phases equally long."""
        return self.cells * self.stride - self.length

    @property
    def lead(self) -> int:
        """How many of these stand in front of the kernel: where there are enough of them, what is kept of the whole
        result begins with the first phase, and nothing is cut off in front."""
        wanted = -self.begin % self.stride
        return wanted if wanted <= self.missing else 0

    @property
    def start(self) -> int:
        """Cells cut off in front of the whole result of the longer kernel."""
        return self.begin + self.lead

    @property
    def dilation(self) -> int:
        return self.spacing if self.stride == 1 else 1

    @property
    def first(self) -> int:
        """The first position of the convolution, counted in strides of the whole result."""
        return min(self.start // self.stride, self.reach)

    @property
    def reach(self) -> int:
        """Cells of the input in front of the last that a window reads."""
        return (self.cells - 1) * self.dilation

    @property
    def pads(self) -> tuple[int, int]:
        """Pads of the convolution, in front and behind."""
        return self.reach - self.first, max(0, -(-(self.start + self.out) // self.stride) - self.extent)

    @property
    def positions(self) -> int:
        """Extent of the convolution's result."""
        return self.extent + sum(self.pads) - self.reach


def import_conv_transpose(node: NodeImport) -> None:
    source, weights = node.type(0), node.type(1)
    if source.rank < 3 or weights.rank != source.rank:
        raise ShapeError(
            f"input {list(source.shape)} and weight {list(weights.shape)} must have one rank of at least 3"
        )
    if source.rank > 5:
        raise Refusal("unsupported-op", f"{source.rank - 2} spatial axes are not supported (at most 3)")
    groups = node.integer("group", 1)
    if groups < 1 or source.shape[1] % groups or weights.shape[0] != source.shape[1]:
        raise ShapeError(
            f"the weight {list(weights.shape)} does not fit an input of {source.shape[1]} channels in {groups} groups"
        )
    axes = _axes(node, source.shape[2:], weights.shape[2:])
    filters, phases = groups * weights.shape[1], prod(axis.stride for axis in axes)
    x, inputs = node.input(0), [_phases(node, axes, groups)]
    if node.has(2):
        if node.type(2).shape != (filters,):
            raise ShapeError(f"bias {list(node.type(2).shape)} must be [{filters}], one a filter")
        inputs.append(_repeated(node, node.input(2), filters, phases, phases_first=groups == 1))
    op = Conv(
        (1,) * len(axes), tuple(axis.pads[0] for axis in axes), tuple(axis.pads[1] for axis in axes),
        tuple(axis.dilation for axis in axes), groups,
    )  # fmt: skip
    shape = (source.shape[0], filters, *(axis.positions * axis.stride for axis in axes))
    wanted = (*shape[:2], *(axis.out for axis in axes))
    is_whole = shape == wanted
    y = node.emit(op, [x, *inputs], 0 if phases == 1 and is_whole else None)
    if phases > 1:
        # Without groups filters of one phase follow each other, so that pixels stay together channels last.
        count, own = len(axes), tuple(axis.stride for axis in axes)
        lead = (shape[1], *own) if groups > 1 else (*own, shape[1])
        split = (shape[0], *lead, *(axis.positions for axis in axes))
        filter_at, phase_at = (1, 2) if groups > 1 else (1 + count, 1)
        perm = (0, filter_at, *(n for axis in range(count) for n in (2 + count + axis, phase_at + axis)))
        between = node.emit(Transpose(perm), [node.emit(Reshape(split), [y])])
        y = node.emit(Reshape(shape), [between], 0 if is_whole else None)
    if not is_whole:
        begin = (0, 0, *(axis.start - axis.first * axis.stride for axis in axes))
        node.emit(Slice(begin, wanted, (1,) * len(wanted)), [y], 0)


def _axes(node: NodeImport, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> list[_Axis]:
    """The spatial axes. Raises ShapeError where attributes do not fit, or nothing is left of the result."""
    rank = len(spatial)
    ones, zeros = (1,) * rank, (0,) * rank
    if node.given("kernel_shape") and node.integers("kernel_shape") != kernel:
        raise ShapeError(f"kernel_shape {list(node.integers('kernel_shape'))} is not the weight's {list(kernel)}")
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    more, pads = node.integers("output_padding", zeros), node.integers("pads", (0,) * (2 * rank))
    asked = node.integers("output_shape") if node.given("output_shape") else None
    for name, entries, count in (
        ("strides", strides, rank), ("dilations", dilations, rank), ("output_padding", more, rank),
        ("pads", pads, 2 * rank), ("output_shape", asked if asked is not None else zeros, rank),
    ):  # fmt: skip
        if len(entries) != count:
            raise ShapeError(f"{name} {list(entries)} has {len(entries)} entries for {rank} spatial axes")
    if min(*strides, *dilations) < 1 or min(*more, *pads) < 0:
        raise ShapeError("strides and dilations must be at least 1, pads and output_padding at least 0")
    mode = node.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Refusal("unsupported-attribute", f"auto_pad '{mode}' is not supported")
    found = []
    for axis in range(rank):
        stride, spacing, taps = strides[axis], dilations[axis], kernel[axis]
        whole = stride * (spatial[axis] - 1) + more[axis] + (taps - 1) * spacing + 1
        begin, end = (pads[axis], pads[axis + rank]) if mode in ("NOTSET", "") else (0, 0)
        if asked is not None or mode.startswith("SAME"):
            cut = whole - (asked[axis] if asked is not None else spatial[axis] * stride)
            if cut > 0 and cut % 2 and not mode.startswith("SAME"):
                raise Refusal("unsupported-attribute", _ODD.format(cut=cut, axis=axis))
            # Where more is asked for than there is, zeros follow.
            begin = max(0, cut // 2 if mode == "SAME_UPPER" else cut - cut // 2)
            end = cut - begin
        if whole - begin - end < 1:
            raise ShapeError(f"pads {begin} and {end} leave nothing of the {whole} cells of spatial axis {axis}")
        found.append(_Axis(spatial[axis], stride, taps, spacing, begin, whole - begin - end))
    return found


def _phases(node: NodeImport, axes: list[_Axis], groups: int) -> str:
    """The weights [C, K/groups, *kernel] as those of a convolution, [K * phases, C/groups, *cells]."""
    (channels, filters, *kernel), count = node.type(1).shape, len(axes)
    name = node.emit(Reshape((groups, channels // groups, filters, *kernel)), [node.input(1)])
    name = node.emit(Transpose((0, 2, 1, *range(3, 3 + count))), [name])
    front = (groups * filters, channels // groups)
    name = node.emit(Reshape((*front, *kernel)), [name])
    if any(axis.length != axis.taps for axis in axes):
        wide = tuple(axis.spacing if axis.length != axis.taps else 1 for axis in axes)
        name = node.emit(Reshape((*front, *(n for tap in kernel for n in (tap, 1)))), [name])
        end = (0, 0, *(n for spacing in wide for n in (0, spacing - 1)))
        name = node.emit(Pad((0,) * len(end), end), [name])
        name = node.emit(Reshape((*front, *(tap * by for tap, by in zip(kernel, wide, strict=True)))), [name])
        name = node.emit(
            Slice((0,) * (2 + count), (*front, *(axis.length for axis in axes)), (1,) * (2 + count)), [name]
        )
    if any(axis.missing for axis in axes):
        lead, rest = tuple(axis.lead for axis in axes), tuple(axis.missing - axis.lead for axis in axes)
        name = node.emit(Pad((0, 0, *lead), (0, 0, *rest)), [name])
    strides, cells = tuple(axis.stride for axis in axes), tuple(axis.cells for axis in axes)
    if prod(strides) > 1:
        name = node.emit(Reshape((*front, *(n for axis in axes for n in (axis.cells, axis.stride)))), [name])
        phase = tuple(3 + 2 * axis for axis in range(count))
        perm = (*(phase if groups == 1 else ()), 0, *(() if groups == 1 else phase), 1, *(at - 1 for at in phase))
        name = node.emit(Transpose(perm), [name])
        name = node.emit(Reshape((front[0] * prod(strides), front[1], *cells)), [name])
    if prod(cells) == 1:
        return name
    last = (0, 0, *(extent - 1 for extent in cells))
    return node.emit(Slice(last, (front[0] * prod(strides), front[1], *cells), (1, 1, *(-1,) * count)), [name])


def _repeated(node: NodeImport, name: str, filters: int, phases: int, *, phases_first: bool) -> str:
    """A bias with each entry once a phase."""
    if phases == 1:
        return name
    if phases_first:
        wide = node.emit(Expand((phases, filters)), [node.emit(Reshape((1, filters)), [name])])
    else:
        wide = node.emit(Expand((filters, phases)), [node.emit(Reshape((filters, 1)), [name])])
    return node.emit(Reshape((filters * phases,)), [wide])


_ODD = (
    "output_shape cuts {cut} cells off spatial axis {axis}, an odd number: ONNX's text and its runtimes disagree about "
    "the side that loses more"
)

IMPORTERS = (
    Importer(
        "ConvTranspose", (1, 11, 22), import_conv_transpose, example=Example((Data(IMAGE), Weights((4, 8, 3, 3))))
    ),
)
