"""Images read between their pixels: regions as images of one size, and windows whose taps lie where data say."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import strides
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.images.roi_align import RoiAlign
from bolt_build.graph.ops.images.roi_pool import RoiPool
from bolt_build.graph.ops.products.deform_conv import DeformedWindows
from bolt_build.targets import Target

_HEADER = ("bolt_portable/regions.h",)


def _refuse(problem: KernelProblem, images: tuple[Operand, ...]) -> str | None:
    """`images`: the operands that are read and written in floating point."""
    if any(operand.format.dtype not in COMPUTED for operand in images):
        return f"reads between pixels of {', '.join(each.value for each in COMPUTED)} alone"
    return no_epilogue(problem)


def _refuse_regions(problem: KernelProblem) -> str | None:
    return _refuse(problem, (*problem.inputs[:2], *problem.outputs))


def _refuse_windows(problem: KernelProblem) -> str | None:
    return _refuse(problem, (*problem.inputs, *problem.outputs))


def _region_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last."""
    return tuple(((layout, Layout.ROW, Layout.ROW), layout) for layout in Layout)


def _window_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last; offsets and masks have a row-major image for each tap."""
    return tuple(((layout, *[Layout.ROW] * (len(inputs) - 1)), Layout.ROW) for layout in Layout)


@dataclass(frozen=True)
class RegionTile:
    """So many `words` of channels of a cell are a thread's."""

    words: int

    @property
    def parameters(self) -> Named:
        return (("words", self.words),)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> RegionTile:
        return RegionTile(reader.number("words"))


_EXTENTS = ("images", "channels", "rows", "columns", "regions", "height", "width")
_APART = ("in_image", "in_channel", "in_row", "in_column", "out_region", "out_channel", "out_row", "out_column")


def of_regions(problem: KernelProblem) -> tuple[dict[str, int], dict[str, int]]:
    """Extents of images, regions and the cells that each becomes, and the strides of images and results, as kernels of
    RoiAlign and MaxRoiPool name them: in the order of their parameters, with the operator's own between."""
    op, (x, regions, _), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, RoiAlign | RoiPool)
    extents = (*x.shape, regions.shape[0], op.height, op.width)
    apart = (*strides(x), *strides(output))
    return dict(zip(_EXTENTS, extents, strict=True)), dict(zip(_APART, apart, strict=True))


def _emit_regions(problem: KernelProblem, tile: RegionTile | None, at: StepExpressions) -> StepCode:
    op, (x, regions, images), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, RoiAlign)
    extents, apart = of_regions(problem)
    parameters = struct(
        "bolt::portable::RoiAlign",
        **extents,
        ratio=op.ratio,
        scale=literal(op.scale),
        half=boolean(op.half),
        **apart,
    )
    types = ", ".join((
        boolean(op.maximum), str(tile.words if tile else 0), COMPUTED[x.format.dtype],
        COMPUTED[regions.format.dtype], ctype(images.format.dtype), COMPUTED[output.format.dtype],
    ))  # fmt: skip
    call = f"bolt::portable::roi_align<{types}>(r, {parameters}, {', '.join(at.inputs)}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _emit_windows(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (x, offsets, *masks), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, DeformedWindows)
    parameters = struct(
        "bolt::portable::DeformedWindows",
        images=x.shape[0],
        channels=x.shape[1],
        groups=op.groups,
        rows=x.shape[2],
        columns=x.shape[3],
        height=offsets.shape[2],
        width=offsets.shape[3],
        kernel=braces(op.kernel),
        stride=braces(op.strides),
        begin=braces(op.begin),
        dilation=braces(op.dilations),
        **dict(zip(("in_image", "in_channel", "in_row", "in_column"), strides(x), strict=True)),
    )
    mask = masks[0] if masks else offsets
    types = ", ".join(COMPUTED[each.format.dtype] for each in (x, offsets, mask, output))
    pointers = [*at.inputs, *([] if masks else ["nullptr"])]
    call = f"bolt::portable::deformed_windows<{types}>(r, {parameters}, {', '.join(pointers)}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


_WORD = 8
"""Channels that a thread has at once."""
_PLACE, _ROW, _SAMPLE, _WORD_OF_SAMPLE, _ELEMENT_OF_SAMPLE = 260, 60, 25, 100, 80
"""Instructions of a thread for where its cell lies and for its store, for the place of a row of samples, for that of a
sample, and for the four pixels of a sample: a word of each, or an element. As in machine code for Hopper."""
_ENOUGH = 1 << 20
"""Words of the result from which on a thread has two."""
_SECTOR, _LANES = 32, 128
"""Bytes that memory gives at least, and lanes of a multiprocessor."""
_CACHED = 64
"""Bytes that a multiprocessor's L1 cache gives in a clock, about."""
_ANY_RATIO = 2
"""Samples along an axis where regions say how many: of a region twice as large as the result. A guess."""
_ISSUED = 0.7
"""The part of the rate of instructions at which threads go."""


def _usual(problem: KernelProblem) -> RegionTile | None:
    """Two words where that leaves threads enough; None where a thread has one element, as of planes."""
    one, two = RegionTile(1), RegionTile(2)
    if _refuse_tile(problem, one) is not None:
        return None
    many = problem.outputs[0].type.elements // _WORD >= _ENOUGH
    return two if many and _refuse_tile(problem, two) is None else one


def _refuse_tile(problem: KernelProblem, tile: RegionTile) -> str | None:
    x, output = problem.inputs[0], problem.outputs[0]
    if not x.format.layout is output.format.layout is Layout.CHANNELS_LAST:
        return "words are of images whose channels lie last"
    if tile.words not in (1, 2):
        return "a thread has one word or two"
    if x.shape[1] % (tile.words * _WORD):
        return Reason("{} channels are no multiple of {}", x.shape[1], tile.words * _WORD)
    return None


def _region_seconds(problem: KernelProblem, target: Target) -> float:
    """What threads take for their places, samples and pixels, or what these take of caches, if that is longer."""
    op, x, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, RoiAlign)
    assert target.gpu is not None
    tile, ratio = _usual(problem), op.ratio or _ANY_RATIO
    words = tile.words if tile else 0
    lanes, own = (words * _WORD, words * _WORD_OF_SAMPLE) if words else (1, _ELEMENT_OF_SAMPLE)
    threads, samples = output.type.elements / lanes, ratio**2
    issued = threads * (_PLACE + ratio * _ROW + samples * (_SAMPLE + own))
    # Neighbouring threads have neighbouring words; without words each element is a sector of its own.
    loaded = threads * samples * 4 * (lanes * x.format.dtype.nbytes if words else _SECTOR)
    rate = target.rate("fp32") / 2
    clock = rate / (target.gpu.sms * _LANES)
    cached = loaded / (_CACHED * target.gpu.sms * clock)
    return max(moved(problem.nbytes, target), issued / rate / _ISSUED, cached) + OVERLAPPED * target.launch_seconds


def _guess(problem: KernelProblem) -> float:
    """A guess: neighbours of a place lie apart. Nobody has timed it."""
    return 0.3


_PLAIN = Plain(_usual, RegionTile.read, _refuse_tile, _emit_regions)
RULES = (
    Rule(
        RoiAlign, _refuse_regions, _PLAIN.emit_usual, lambda problem: 0.01, gpu_seconds=_region_seconds,
        layouts=_region_layouts, plain=_PLAIN,
    ),
    Rule(
        DeformedWindows, _refuse_windows, _emit_windows, lambda problem: 0.01, gpu_efficiency=0.002,
        gpu_bandwidth=_guess, layouts=_window_layouts,
    ),
)  # fmt: skip
