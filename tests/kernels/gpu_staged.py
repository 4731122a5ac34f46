"""Lines of odd extents in shared memory, side by side in registers, and in groups that a block holds: normalisations,
softmax and its logarithm, and local response normalisation; of neighbours and side by side, of one thread and of many,
with ragged ends, in place, in and out of single precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, norm, one, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import Tile
from bolt_build.families.portable.kernels.lines.line_groups import GroupTile
from bolt_build.families.portable.kernels.lines.long_lines import SharedTwiceTile, TwiceTile
from bolt_build.families.portable.kernels.lines.paired_lines import PairedTile
from bolt_build.families.portable.kernels.lines.register_lines import RegisterTile
from bolt_build.families.portable.kernels.lines.spread_lines import SpreadTile
from bolt_build.families.portable.kernels.lines.staged import StagedTile
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import Lrn

PORTABLE = Portable()
LAST, CHANNELS = Norm("variance", (2,), 1e-5), Norm("variance", (1,), 1e-5)


def logits(label: str, op: Softmax | Line, *shape: int) -> Layer:
    return Layer(label, op, (Input(shape, low=-6, high=6),))


LAYERS: tuple[tuple[Layer, tuple[StagedTile, ...]], ...] = (
    (norm("staged-333", LAST, (3, 23, 333), (333,)), (StagedTile(16, 16, 128), StagedTile(32, 8, 256))),
    (norm("staged-1501", LAST, (2, 5, 1501), (5, 1)), (StagedTile(128, 3, 128), StagedTile(256, 4, 256))),
    (
        Layer("staged-chain", LAST, (Input((5, 7, 90)), Input((90,)), Input((90,)), Input((5, 7, 90))),
              (stage("add", 3), RELU)),
        (StagedTile(4, 32, 128), StagedTile(8, 16, 128)),
    ),
    (Layer("staged-rms", Norm("rms", (2,), 1e-5), (Input((3, 3, 1025)), Input((1025,), True))),
     (StagedTile(32, 4, 128),)),
    (norm("staged-l2", Norm("l2", (2,)), (3, 41, 21)), (StagedTile(1, 128, 128),)),
    (norm("staged-across", CHANNELS, (2, 96, 7, 9), (96, 1, 1)), (StagedTile(4, 64, 256), StagedTile(8, 32, 128))),
    (
        Layer("staged-across-chain", CHANNELS, (Input((2, 30, 5, 19)), Input((30, 1, 1)), Input((30, 1, 1)),
              Input((2, 30, 5, 19)), Input((30, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (StagedTile(1, 128, 128),),
    ),
    (norm("staged-across-l2", Norm("l2", (1,)), (2, 256, 5, 13)), (StagedTile(8, 64, 128), StagedTile(16, 32, 256))),
    (logits("staged-softmax-49", Softmax(1), 301, 49), (StagedTile(4, 64, 128), StagedTile(8, 32, 256))),
    (logits("staged-softmax-1001", Softmax(1), 13, 1001), (StagedTile(32, 4, 128), StagedTile(128, 5, 128))),
    (logits("staged-log-21", Line("log_softmax", 1), 301, 21), (StagedTile(1, 128, 128),)),
    (logits("staged-softmax-197", Softmax(1), 2, 197, 35), (StagedTile(8, 32, 128), StagedTile(16, 32, 512))),
    (logits("staged-log-across", Line("log_softmax", 1), 3, 21, 77), (StagedTile(1, 128, 128), StagedTile(2, 64, 128))),
    (logits("staged-softmax-even", Softmax(1), 2, 21, 50), (StagedTile(1, 128, 128),)),
    (one("staged-lrn", Lrn(5, 1e-2, 0.75, 1.0), (2, 96, 5, 11)), (StagedTile(4, 32, 128), StagedTile(32, 8, 256))),
    (one("staged-lrn-even", Lrn(4, 0.3, 0.5, 2.0), (2, 19, 4, 8)), (StagedTile(2, 64, 128), StagedTile(8, 32, 256))),
    (one("staged-lrn-one", Lrn(1, 0.3, 1.2, 0.7), (3, 7, 7, 5)), (StagedTile(1, 128, 128),)),
)  # fmt: skip
"""And kernels that prediction would not put first."""
SINGLE = ("staged-333", "staged-across", "staged-softmax-197", "staged-log-21", "staged-lrn-even")

BESIDE: tuple[tuple[Layer, tuple[RegisterTile | TwiceTile | GroupTile | SpreadTile, ...]], ...] = (
    (norm("beside-norm", CHANNELS, (2, 96, 7, 9), (96, 1, 1)), (RegisterTile(4, 64), RegisterTile(32, 32))),
    (
        Layer("beside-chain", CHANNELS, (Input((2, 31, 5, 19)), Input((31, 1, 1)), Input((31, 1, 1)),
              Input((2, 31, 5, 19)), Input((31, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (RegisterTile(1, 128), RegisterTile(8, 64)),
    ),
    (Layer("beside-rms", Norm("rms", (1,), 1e-5), (Input((3, 129, 21)), Input((129, 1), True))),
     (RegisterTile(8, 32),)),
    (norm("beside-l2", Norm("l2", (1,)), (2, 256, 5, 13)), (RegisterTile(8, 128), RegisterTile(16, 32))),
    (logits("beside-softmax-197", Softmax(1), 2, 197, 35), (RegisterTile(8, 32), RegisterTile(16, 64))),
    (logits("beside-softmax-even", Softmax(1), 3, 24, 64), (RegisterTile(2, 64), RegisterTile(4, 256))),
    (logits("beside-log", Line("log_softmax", 2), 2, 3, 21, 77), (RegisterTile(1, 256), RegisterTile(2, 128))),
    (logits("beside-long", Softmax(1), 2, 1201, 21), (TwiceTile(8, 32), TwiceTile(32, 32))),
    (logits("beside-long-log", Line("log_softmax", 1), 1, 1409, 50), (TwiceTile(4, 64), TwiceTile(16, 64))),
    (logits("beside-spread", Softmax(1), 3, 4711), (SpreadTile(256, 1, 10), SpreadTile(256, 2, 3))),
    (logits("beside-spread-log", Line("log_softmax", 1), 2, 16513), (SpreadTile(512, 4, 9), SpreadTile(256, 8, 5))),
    (logits("groups-softmax", Softmax(1), 5, 61, 35), (GroupTile(96, 4, 2, 2, 2), GroupTile(128, 3, 1, 1, 3))),
    (logits("groups-log", Line("log_softmax", 2), 2, 3, 24, 48), (GroupTile(64, 3, 2, 1, 4),)),
    (one("beside-lrn", Lrn(5, 1e-2, 0.75, 1.0), (2, 97, 5, 11)), (RegisterTile(4, 32), RegisterTile(16, 32))),
    (one("beside-lrn-even", Lrn(4, 0.3, 0.5, 2.0), (2, 19, 4, 8)), (RegisterTile(1, 128), RegisterTile(2, 64))),
)  # fmt: skip
"""Lines side by side, each stated with threads of its own and with some that share it."""
BESIDE_SINGLE = ("beside-chain", "beside-long", "beside-spread", "beside-softmax-197", "beside-lrn-even")


LONG: tuple[tuple[Layer, tuple[PairedTile, ...]], ...] = (
    (logits("long-softmax", Softmax(1), 3, 9001), (PairedTile(2, 256, 768), PairedTile(2, 512, 512))),
    (logits("long-log", Line("log_softmax", 1), 2, 12296), (PairedTile(7, 256, 256), PairedTile(1, 256, 1536))),
    (logits("long-edges", Softmax(2), 1, 5, 4099), (PairedTile(3, 256, 256),)),
)  # fmt: skip
"""Long lines of neighbours, each by several blocks of two kernels."""
LONG_SINGLE = ("long-softmax", "long-log")


_SHARED: tuple[tuple[Layer, tuple[SharedTwiceTile, ...]], ...] = (
    (logits("shared-lines", Softmax(1), 2, 1301, 40), (SharedTwiceTile(8, 32, 8), SharedTwiceTile(32, 32, 2))),
    (logits("shared-log", Line("log_softmax", 1), 1, 1409, 50), (SharedTwiceTile(4, 64, 4),)),
)
"""Long lines side by side, each by the blocks of a cluster."""


def shared_line_trials() -> list[Trial]:
    """From Hopper on."""
    if TARGET.gpu is None or not TARGET.gpu.warpgroup_mma:
        return []
    return stated_trials(_SHARED, ("shared-lines",), {SharedTwiceTile: "shared_twice"})


def staged_trials() -> list[Trial]:
    """What prediction puts first of each layout, and kernels that are stated."""
    beside = {RegisterTile: "registers", TwiceTile: "twice", GroupTile: "groups", SpreadTile: "spread"}
    long = stated_trials(LONG, LONG_SINGLE, {PairedTile: "paired"})
    return stated_trials(LAYERS, SINGLE, {StagedTile: "staged"}) + stated_trials(BESIDE, BESIDE_SINGLE, beside) + long


def stated_trials(
    layers: Sequence[tuple[Layer, Sequence[Tile]]], single: Sequence[str], forms: Mapping[type[Tile], str]
) -> list[Trial]:
    """Layers in half precision, and those of `single` in single too: of each layout and each type of the output, what
    prediction puts first of the `forms`, in every sharing of memory; and the stated tiles where the output is as wide
    as the input."""
    found = []
    both = [(layer, tiles, precision) for layer, tiles in layers for precision in (DType.F16, DType.F32)]
    for layer, tiles, precision in both:
        if precision is DType.F16:
            of = replace(layer, precision=precision, tolerance=TOLERANCE)
        elif layer.label in single:
            of = replace(layer, precision=precision, tolerance=2e-5, label=f"single-{layer.label}")
        else:
            continue
        first, each = dict[object, Trial](), dict[object, Trial]()
        for trial in trials_of(of, "portable", 19) if asked([of]) else ():
            each.setdefault((trial.step, trial.shared), trial)
            if dict(trial.candidate.parameters)["algorithm"] in forms.values():
                first.setdefault((trial.step, trial.shared), trial)
        found += first.values()
        alone = [t for t in each.values() if t.shared is None and t.step.problem.outputs[0].format.dtype is precision]
        for tile in tiles:
            candidate = Candidate("portable", (("algorithm", forms[type(tile)]), *tile.parameters), tile.settings)
            legal = (t for t in alone if PORTABLE.refuse(t.step.problem, candidate, TARGET) is None)
            found += [replace(trial, candidate=candidate) for trial in legal]
    return list({trial.label: trial for trial in found}.values())
