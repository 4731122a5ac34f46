"""Grouped and depthwise convolutions that are tried on a GPU: every way in which their kernels differ."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer, graph_with
from families_layers import CLIP, RELU, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import Kind, candidate_of
from bolt_build.families.grouped.kinds import banded, down
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import shape_of
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation

FAMILY = Grouped()
Strides = tuple[int, int, int]
NO_PADS = ((0, 0), (0, 0))


def _with_constants(layer: Layer, *shapes: tuple[int, ...]) -> Layer:
    """The layer whose last inputs, those of its epilogue, are constants of these shapes."""
    kept = layer.inputs[: len(layer.inputs) - len(shapes)]
    return replace(layer, inputs=(*kept, *(Input(shape, True) for shape in shapes)))


DEPTHWISE = [
    *(conv(f"dw-3x3s{s}", (2, 48, 13, 19), 48, (3, 3), s, groups=48) for s in (1, 2, 3)),
    *(conv(f"dw-3x3d{d}s{s}", (2, 40, 17, 15), 40, (3, 3), s, dilation=d, groups=40) for d in (2, 3) for s in (1, 2)),
    *(conv(f"dw-{k}x{k}s{s}", (1, 24, 15, 17), 24, (k, k), s, groups=24) for k in (5, 7) for s in (1, 2)),
    conv("dw-11x11", (1, 16, 14, 13), 16, (11, 11), groups=16),
    conv("dw-21x21s2d2", (1, 16, 31, 30), 16, (21, 21), 2, dilation=2, groups=16),
    conv("dw-2x2-valid", (2, 32, 9, 11), 32, (2, 2), pads=NO_PADS, groups=32),
    conv("dw-1x1", (2, 32, 9, 11), 32, (1, 1), groups=32),
    conv("dw-1x5", (2, 32, 9, 11), 32, (1, 5), groups=32),
    conv("dw-5x3-asymmetric", (2, 16, 12, 10), 16, (5, 3), 2, ((1, 2), (3, 0)), groups=16),
    conv("dw-1d", (2, 24, 50), 24, (5,), 2, groups=24),
    conv("dw-1d-31", (1, 24, 90), 24, (31,), groups=24),
    *(conv(f"dw-channels-{c}", (2, c, 9, 11), c, (3, 3), groups=c) for c in (2, 3, 7, 12, 20, 33, 66, 130)),
    *(conv(f"dw-times-{m}", (2, 24, 9, 11), 24 * m, (3, 3), groups=24) for m in (2, 3, 4, 5, 16)),
    conv("dw-times-2-odd", (2, 9, 9, 11), 18, (3, 3), 2, groups=9),
    conv("dw-no-bias", (2, 64, 9, 11), 64, (3, 3), groups=64, epilogue=(), bias=False),
    conv("dw-silu", (2, 64, 9, 11), 64, (5, 5), groups=64, epilogue=SILU),
    conv("dw-hard-swish", (2, 72, 8, 8), 72, (5, 5), 2, groups=72, epilogue=(EpilogueOp(Activation("hard_swish")),)),
    conv("dw-residual", (2, 64, 9, 11), 64, (3, 3), groups=64, epilogue=RESIDUAL),
    conv("dw-residual-odd", (2, 35, 9, 11), 35, (3, 3), groups=35, epilogue=RESIDUAL),
    conv("dw-two-residuals", (1, 24, 9, 9), 24, (3, 3), groups=24, epilogue=(stage("mul", 3), CLIP, stage("sub", 4))),
    _with_constants(
        conv("dw-scaled", (2, 40, 7, 9), 40, (3, 3), groups=40, epilogue=(RELU, stage("mul", 3), stage("add", 4))),
        (40, 1, 1), (1,),
    ),
]  # fmt: skip

BANDS = [
    conv("dw-7x7-form", (3, 96, 30, 29), 96, (7, 7), groups=96, epilogue=RESIDUAL),
    conv("dw-7x7-images", (5, 40, 7, 7), 40, (7, 7), groups=40, epilogue=SILU),
    conv("dw-7x7-wide", (2, 24, 5, 150), 24, (7, 7), groups=24, epilogue=RESIDUAL),
    conv("dw-9x3-valid", (3, 22, 15, 12), 22, (9, 3), pads=NO_PADS, groups=22),
    conv("dw-11x11-bands", (2, 40, 17, 29), 40, (11, 11), groups=40, epilogue=RESIDUAL),
    conv("dw-13x13-bands", (3, 24, 14, 21), 24, (13, 13), groups=24),
    conv("dw-3x17-bands", (2, 22, 9, 35), 22, (3, 17), groups=22, epilogue=SILU),
    conv("dw-7x7d3-bands", (2, 24, 20, 19), 24, (7, 7), dilation=3, groups=24, epilogue=RESIDUAL),
    conv("dw-5x5d2-bands", (3, 22, 13, 30), 22, (5, 5), pads=((2, 6), (0, 8)), dilation=2, groups=22),
    _with_constants(
        conv("dw-5x5-scaled", (2, 22, 9, 11), 22, (5, 5), groups=22, epilogue=(RELU, stage("mul", 3))), (22, 1, 1)
    ),
]
"""Depthwise windows whose rows are bands of matrices: one image beside another, and images in several tiles."""

DOWN = [
    conv("gr-7x7-down", (3, 64, 30, 29), 64, (7, 7), groups=8, epilogue=RESIDUAL),
    conv("gr-5x5-down-joined", (2, 48, 9, 40), 48, (5, 5), groups=12, epilogue=SILU),
    conv("gr-9x9-down-few", (2, 32, 17, 19), 8, (9, 9), groups=8, epilogue=RESIDUAL),
    conv("gr-5x5-down-16", (2, 64, 12, 33), 96, (5, 5), groups=4),
    conv("gr-7x3-down-odd", (2, 30, 15, 12), 50, (7, 3), pads=NO_PADS, groups=10, bias=False),
    conv("gr-4x5-down-12", (1, 36, 11, 21), 36, (4, 5), groups=3, epilogue=SILU),
]
"""Windows over groups of channels that go down an image: groups in one octet or in two, odd ones, few results."""

DEEP = [
    conv("deep-1d", (3, 96, 37), 96, (40,), pads=((20,), (20,)), groups=2),
    conv("deep-1d-s2", (2, 48, 90), 32, (16,), 2, pads=((7,), (8,)), groups=2, epilogue=SILU),
    conv("deep-64s2", (5, 128, 9, 11), 128, (3, 3), 2, groups=2, epilogue=RESIDUAL),
    conv("deep-odd", (3, 75, 11, 9), 66, (5, 5), groups=3),
    conv("deep-d2s3", (2, 96, 19, 23), 160, (3, 4), 3, dilation=2, groups=2),
]
"""Products whose depth warps share."""


def _volume(
    label: str, x: tuple[int, ...], window: tuple[int, ...], strides: Strides, dilations: Strides, *more: EpilogueOp
) -> Layer:
    """A depthwise convolution over volumes, with stages behind it."""
    layer = conv(label, x, x[1], window, groups=x[1], epilogue=more)
    return replace(layer, op=replace(layer.op, strides=strides, dilations=dilations))


ONES = (1, 1, 1)
VOLUMES = [
    _volume("vol-3x3x3", (2, 22, 7, 9, 11), (3, 3, 3), ONES, ONES, *RESIDUAL),
    _volume("vol-s122", (1, 40, 5, 13, 12), (3, 3, 3), (1, 2, 2), ONES, *SILU),
    _volume("vol-5x3x4", (2, 7, 9, 8, 10), (5, 3, 4), (2, 1, 3), ONES),
    _volume("vol-5x5x5", (1, 24, 6, 9, 14), (5, 5, 5), ONES, ONES, *SILU),
    _volume("vol-d212", (1, 12, 9, 8, 11), (3, 3, 2), (1, 1, 2), (2, 1, 2)),
    _volume("vol-d3s2", (2, 16, 13, 11, 10), (3, 2, 3), (2, 3, 1), (3, 2, 3)),
]
"""Depthwise windows over volumes, whose planes are read once."""

GROUPED = [
    *(
        conv(f"gr-{c}x{g}s{s}", (2, c * g, 13, 15), c * g, (3, 3), s, groups=g)
        for c, g, s in ((2, 8, 1), (4, 32, 1), (4, 16, 2), (8, 8, 1), (8, 4, 2), (16, 4, 1), (24, 3, 2), (32, 4, 1))
    ),
    *(conv(f"gr-{c}x2", (1, 2 * c, 9, 10), 2 * c, (3, 3), groups=2) for c in (48, 64, 112, 160)),
    *(
        conv(f"gr-{c}to{k}x{g}", (2, c * g, 9, 11), k * g, (3, 3), groups=g)
        for c, k, g in ((3, 5, 5), (2, 3, 7), (5, 4, 3), (7, 9, 3), (4, 1, 6), (3, 16, 4), (20, 12, 3), (33, 31, 2),
                        (8, 40, 2), (17, 72, 2), (6, 6, 4), (4, 4, 5))
    ),
    *(conv(f"gr-3x3d{d}s{s}", (2, 32, 17, 15), 32, (3, 3), s, dilation=d, groups=4) for d, s in ((2, 1), (3, 2))),
    conv("gr-3x3s3", (2, 32, 17, 15), 32, (3, 3), 3, groups=4),
    conv("gr-1x1", (2, 64, 9, 11), 96, (1, 1), groups=4),
    conv("gr-1x1s2", (2, 64, 9, 11), 32, (1, 1), 2, groups=8),
    conv("gr-5x5", (1, 96, 13, 13), 256, (5, 5), groups=2),
    conv("gr-7x7", (1, 16, 15, 14), 16, (7, 7), groups=4),
    conv("gr-2x2-valid", (2, 32, 9, 11), 32, (2, 2), pads=NO_PADS, groups=4),
    conv("gr-5x3-asymmetric", (2, 16, 12, 10), 16, (5, 3), 2, ((1, 2), (3, 0)), groups=2),
    conv("gr-1d", (2, 24, 50), 48, (5,), 2, groups=3),
    conv("gr-no-bias", (2, 32, 9, 11), 32, (3, 3), groups=8, epilogue=(), bias=False),
    conv("gr-silu", (2, 32, 9, 11), 32, (3, 3), groups=4, epilogue=SILU),
    conv("gr-residual", (2, 64, 9, 11), 64, (3, 3), groups=8, epilogue=RESIDUAL),
    conv("gr-residual-odd", (2, 15, 9, 11), 25, (3, 3), groups=5, epilogue=RESIDUAL),
    conv("gr-two-residuals", (1, 24, 9, 9), 24, (3, 3), groups=3, epilogue=(stage("mul", 3), CLIP, stage("sub", 4))),
    _with_constants(
        conv("gr-scaled", (2, 40, 7, 9), 40, (3, 3), groups=10, epilogue=(RELU, stage("mul", 3), stage("add", 4))),
        (40, 1, 1), (1,),
    ),
]  # fmt: skip

FORMS = [
    conv("dw-form", (3, 96, 30, 29), 96, (3, 3), groups=96, epilogue=RESIDUAL),
    conv("dw-form-5x5s2", (2, 96, 30, 29), 96, (5, 5), 2, groups=96),
    conv("dw-form-7x7", (2, 72, 21, 35), 72, (7, 7), groups=72, epilogue=RESIDUAL),
    conv("gr-form-4", (3, 64, 30, 29), 64, (3, 3), groups=16, epilogue=RESIDUAL),
    conv("gr-form-24s2", (2, 72, 30, 29), 72, (3, 3), 2, groups=3),
    conv("gr-form-96", (1, 192, 16, 15), 192, (3, 3), groups=2),
    conv("deep-form", (5, 144, 7, 6), 144, (5, 5), groups=3, epilogue=RESIDUAL),
]


def grouped_trials() -> list[Trial]:
    """Every layer with the kernel of each kind that is predicted to be fastest, some with the last that is offered,
    with every sharing of memory; some in all runs and in many tiles; and with rows of the output apart."""
    found = []
    every = [*DEPTHWISE, *GROUPED, *DEEP]
    for layer in asked(every):
        found += _ends(trials_of(layer, "grouped", 1000), both=every.index(layer) % 4 == 0)
    for layer in asked(VOLUMES):
        found += _ends(trials_of(layer, "grouped", 1000), both=True)
    for layer in asked(FORMS):
        found += _forms(layer)
    for layer in asked(BANDS):
        found += _bands(layer)
    for layer in asked(DOWN):
        found += _of_kind(layer, down.KIND, 5)
    pitched = (DEPTHWISE[0], GROUPED[1], GROUPED[5], FORMS[0], FORMS[3], DEEP[2], BANDS[0], VOLUMES[0], DOWN[0])
    for layer in asked(pitched):
        (first, *_) = trials_of(layer, "grouped")
        row = first.step.problem.outputs[0].row
        found += [replace(first, pitch=row + more) for more in (8, 104)]
    return found


def _ends(trials: list[Trial], *, both: bool) -> list[Trial]:
    """Those of each kind's first candidate, or `both` the first and the last, where the GPU has kernels."""
    kinds: dict[object, list[Candidate]] = {}
    for trial in trials:
        kinds.setdefault(dict(trial.candidate.parameters)["kind"], []).append(trial.candidate)
    ends = {each for found in kinds.values() for each in (found[0], found[-1 if both else 0])}
    return [trial for trial in trials if trial.candidate in ends]


def _forms(layer: Layer) -> list[Trial]:
    """Every twentieth legal tile, the runs in turn; and the first candidate in every run."""
    graph, node = graph_with(layer)
    (alternative,), _ = FAMILY.propose(graph, node, TARGET, layer.precision)
    (step,) = alternative.steps
    shape = shape_of(step.problem)
    first = FAMILY.candidates(step.problem, TARGET)[0][0]
    assert TARGET.gpu is not None
    legal = [tile for kind in kinds_for(shape) for tile in kind.tiles(shape) if tile.refuse(shape, TARGET.gpu) is None]
    chosen: list[Candidate] = [*FAMILY.variants(step.problem, first, TARGET)]
    for index, tile in enumerate(legal[::20]):
        candidate = candidate_of(tile, (1, 2, 4)[index % 3])
        if FAMILY.refuse(step.problem, candidate, TARGET) is None:
            chosen.append(candidate)
    return [Trial(layer, step, candidate) for candidate in dict.fromkeys(chosen)]


def _bands(layer: Layer) -> list[Trial]:
    """Every eighth tile of bands, from many rows to one."""
    return _of_kind(layer, banded.KIND, 8)


def _of_kind(layer: Layer, kind: Kind, every: int) -> list[Trial]:
    """Every so many legal tiles of a kind."""
    graph, node = graph_with(layer)
    step = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0]
    assert TARGET.gpu is not None
    shape, gpu = shape_of(step.problem), TARGET.gpu
    legal = [tile for tile in kind.tiles(shape) if tile.refuse(shape, gpu) is None]
    return [Trial(layer, step, candidate_of(tile, 1)) for tile in legal[::every]]
