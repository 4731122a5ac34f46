"""Normalisations with their elements in shared memory, of one block and of clusters, of channels and of groups of them,
and means of many positions: slabs of several widths, images that fit in none, ragged parts, and what reads whole loads
and what does not."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, norm, one, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, Layout
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norms.norm_ahead import AheadTile
from bolt_build.families.portable.kernels.norms.norm_batches import BatchTile
from bolt_build.families.portable.kernels.norms.norm_both import BothTile
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_passes import PassTile
from bolt_build.families.portable.kernels.norms.norm_slabs import SlabTile
from bolt_build.families.portable.kernels.norms.norm_turns import TurnTile
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.norms.norm import Norm

PORTABLE = Portable()
INSTANCE = Norm("variance", (2, 3), 1e-5)
MEAN = Reduce("mean", (2, 3))
LAYERS = (
    norm("slab-2", INSTANCE, (2, 48, 19, 21), (48, 1, 1)),
    norm("slab-2-data", INSTANCE, (3, 24, 7, 7), (24, 1, 1), data=True),
    norm("slab-8", INSTANCE, (268, 64, 3, 5), (64, 1, 1)),
    norm("slab-1", INSTANCE, (1, 16, 67, 63), (16, 1, 1)),
    norm("slab-none", INSTANCE, (1, 8, 131, 113), (8, 1, 1)),
    norm("slab-narrow", INSTANCE, (2, 20, 9, 11), (20, 1, 1)),
    norm("slab-rms", Norm("rms", (2, 3), 1e-5), (2, 40, 13, 11), (40, 1, 1)),
    Layer("slab-chain", INSTANCE, (Input((2, 48, 9, 11)), Input((48, 1, 1), True), Input((48, 1, 1), True),
          Input((2, 48, 9, 11))), (stage("add", 3), RELU)),
    norm("slab-wide", INSTANCE, (140, 64, 31, 30), (64, 1, 1)),
    norm("slab-many", INSTANCE, (1300, 8, 3, 5), (8, 1, 1)),
    norm("slab-groups", Norm("variance", (1, 2, 3), 1e-5, 4), (3, 40, 23, 19), (40, 1, 1)),
    norm("slab-merged", Norm("variance", (1, 2, 3), 1e-5, 4), (2, 64, 12, 12), (64, 1, 1)),
    norm("slab-one-group", Norm("variance", (1, 2, 3), 1e-5), (2, 24, 17, 13), (24, 1, 1)),
    norm("slab-image", Norm("variance", (1, 2, 3), 1e-5), (1, 64, 20, 19), (64, 1, 1)),
    norm("slab-planes", INSTANCE, (2, 3, 40, 44), (3, 1, 1)),
    norm("slab-batch", Norm("variance", (0, 2, 3), 1e-5), (3, 16, 9, 13)),
    Layer("slab-groups-chain", Norm("variance", (1, 2, 3), 1e-5, 2), (Input((2, 48, 12, 11)), Input((48, 1, 1), True),
          Input((48, 1, 1), True), Input((2, 48, 12, 11)), Input((48, 1, 1), True)),
          (stage("add", 3), RELU, stage("mul", 4))),
    norm("slab-long", Norm("variance", (1,), 1e-5), (6, 16384), (16384,)),
    norm("turn-narrow", Norm("variance", (1,), 1e-5), (201, 200), (200,)),
    Layer("turn-rms", Norm("rms", (2,), 1e-5), (Input((7, 11, 1048)), Input((1048,), True))),
    Layer("turn-chain", Norm("variance", (1,), 1e-5), (Input((35, 520)), Input((520,)), Input((520,)),
          Input((35, 520))), (stage("add", 3), RELU)),
    norm("turn-bare", Norm("l2", (1,)), (90, 776)),
    Layer("batch-rms", Norm("rms", (2,), 1e-5), (Input((3, 7, 9216)), Input((9216,), True))),
    Layer("batch-chain", Norm("variance", (1,), 1e-5), (Input((9, 8200)), Input((8200,)), Input((8200,)),
          Input((9, 8200))), (stage("add", 3), RELU)),
    norm("turn-none-180", Norm("variance", (1,), 1e-5), (67, 180), (180,)),
    Layer("turn-none-90", Norm("rms", (1,), 1e-5), (Input((35, 90)), Input((90,), True), Input((35, 90))),
          (stage("add", 2), RELU)),
    norm("turn-none-771", Norm("variance", (1,), 1e-5), (9, 771), (771,), data=True),
    one("mean-7-of-many", MEAN, (66, 2048, 7, 7)),
    one("mean-28-of-many", MEAN, (36, 64, 28, 27)),
    one("mean-20-of-many", MEAN, (5, 1280, 20, 20)),
    one("mean-25-of-many", MEAN, (2, 1600, 25, 25)),
    one("l2-40-of-many", Reduce("l2", (2, 3), keepdims=True), (1, 1152, 40, 40)),
    one("max-14-of-many", Reduce("max", (2, 3)), (6, 1600, 14, 14)),
    one("mean-few", MEAN, (2, 96, 56, 55)),
    one("mean-odd-channels", MEAN, (3, 12, 14, 14)),
    one("max-7-of-many", Reduce("max", (2, 3)), (67, 2048, 7, 7)),
)  # fmt: skip


IN_BOTH_LAYOUTS = ("slab-groups", "slab-planes", "slab-groups-chain")
TILES: dict[str, tuple[SlabTile, ...]] = {
    "slab-2": (SlabTile(2, 4, 1, 128), SlabTile(3, 8, 2, 256), SlabTile(1, 2, 1, 128)),
    "slab-2-data": (SlabTile(3, 1, 1, 128),),
    "slab-1": (SlabTile(1, 1, 7, 512), SlabTile(1, 8, 1, 128)),
    "slab-rms": (SlabTile(5, 1, 1, 128), SlabTile(1, 1, 1, 256)),
    "slab-many": (SlabTile(1, 1, 1, 256), SlabTile(1, 1, 1, 128)),
    "slab-groups": (SlabTile(5, 2, 3, 256), SlabTile(5, 4, 1, 128)),
    "slab-one-group": (SlabTile(3, 8, 1, 512),),
    "slab-image": (SlabTile(8, 8, 1, 128), SlabTile(8, 2, 1, 256)),
    "slab-batch": (SlabTile(2, 4, 1, 256),),
    "slab-groups-chain": (SlabTile(3, 2, 2, 256), SlabTile(3, 1, 1, 128)),
    "slab-long": (SlabTile(8, 4, 1, 256), SlabTile(8, 8, 1, 128)),
}
HELD: dict[str, tuple[HeldTile, ...]] = {
    "slab-2": (HeldTile(2, 4, 128, 2, 1), HeldTile(3, 8, 128, 2, 1), HeldTile(6, 1, 256, 10, 1)),
    "slab-2-data": (HeldTile(3, 1, 128, 2, 1),),
    "slab-1": (HeldTile(1, 8, 128, 5, 1), HeldTile(2, 4, 256, 9, 1)),
    "slab-rms": (HeldTile(5, 2, 128, 3, 1),),
    "slab-groups": (HeldTile(5, 4, 128, 5, 1), HeldTile(5, 2, 256, 5, 1)),
    "slab-merged": (HeldTile(8, 1, 128, 9, 1),),
    "slab-one-group": (HeldTile(3, 8, 128, 1, 1), HeldTile(3, 1, 256, 3, 1)),
    "slab-image": (HeldTile(8, 8, 128, 3, 1),),
    "slab-batch": (HeldTile(2, 4, 128, 2, 1),),
    "slab-groups-chain": (HeldTile(3, 2, 128, 2, 1), HeldTile(6, 1, 256, 4, 1)),
    "slab-long": (HeldTile(8, 4, 256, 2, 1), HeldTile(8, 1, 256, 8, 1)),
    "slab-planes": (HeldTile(4, 2, 128, 1, 1),),
}
AHEAD: dict[str, tuple[AheadTile, ...]] = {
    "slab-2": (AheadTile(HeldTile(2, 4, 128, 2, 1), 3), AheadTile(HeldTile(6, 1, 256, 10, 1), 2)),
    "slab-groups": (AheadTile(HeldTile(5, 2, 256, 5, 1), 3),),
    "slab-one-group": (AheadTile(HeldTile(3, 8, 128, 1, 1), 2),),
    "slab-long": (AheadTile(HeldTile(8, 4, 256, 2, 1), 4),),
    "slab-groups-chain": (AheadTile(HeldTile(3, 2, 128, 2, 1), 3),),
}
FITTED: dict[str, tuple[HeldTile, ...]] = {
    "slab-2": (HeldTile(2, 7, 128, 1, 1), HeldTile(6, 3, 256, 4, 1)),
    "slab-groups": (HeldTile(5, 5, 128, 4, 1),),
    "slab-one-group": (HeldTile(3, 6, 64, 2, 1),),
    "slab-groups-chain": (HeldTile(3, 7, 128, 1, 1),),
}
BOTH: dict[str, tuple[BothTile, ...]] = {
    "slab-2": (BothTile(HeldTile(2, 4, 64, 4, 2), 2), BothTile(HeldTile(6, 1, 192, 13, 2), 11)),
    "slab-2-data": (BothTile(HeldTile(3, 1, 64, 3, 2), 1),),
    "slab-rms": (BothTile(HeldTile(5, 2, 64, 6, 4), 3),),
    "slab-groups": (BothTile(HeldTile(5, 2, 128, 9, 2), 5),),
    "slab-one-group": (BothTile(HeldTile(3, 3, 64, 4, 2), 2),),
    "slab-groups-chain": (BothTile(HeldTile(3, 3, 64, 3, 2), 1), BothTile(HeldTile(6, 1, 128, 7, 3), 4)),
    "slab-long": (BothTile(HeldTile(8, 1, 256, 8, 2), 5),),
    "slab-planes": (BothTile(HeldTile(4, 1, 64, 4, 2), 2),),
}
BATCHES: dict[str, tuple[BatchTile, ...]] = {
    "slab-long": (BatchTile(4, 256, 8), BatchTile(4, 512, 4)),
    "batch-rms": (BatchTile(8, 288, 4), BatchTile(16, 160, 8)),
    "batch-chain": (BatchTile(4, 288, 4), BatchTile(4, 160, 8)),
}
PASSES: dict[str, tuple[PassTile, ...]] = {
    "slab-2": (PassTile(6, 7, 128, 1), PassTile(2, 3, 128, 2)),
    "slab-2-data": (PassTile(3, 1, 256, 2),),
    "slab-1": (PassTile(2, 20, 256, 1), PassTile(1, 1, 256, 1)),
    "slab-rms": (PassTile(5, 4, 128, 1),),
    "slab-groups": (PassTile(5, 9, 256, 1),),
    "slab-one-group": (PassTile(3, 3, 256, 1),),
    "slab-groups-chain": (PassTile(3, 4, 128, 3),),
    "slab-planes": (PassTile(4, 2, 128, 2),),
    "slab-long": (PassTile(8, 2, 128, 2),),
}
TURNS: dict[str, tuple[TurnTile, ...]] = {
    "slab-long": (
        TurnTile(512, "registers", 2),
        TurnTile(1024, "shared", 4),
        TurnTile(256, "shared", 5),
        TurnTile(512, "cache", 4),
        TurnTile(256, "together", 1),
        TurnTile(1024, "together", 2),
    ),
    "turn-narrow": (TurnTile(8, "registers", 1), TurnTile(16, "shared", 2), TurnTile(32, "registers", 3)),
    "turn-rms": (
        TurnTile(64, "registers", 7),
        TurnTile(64, "cache", 5),
        TurnTile(128, "shared", 30),
        TurnTile(256, "registers", 3),
    ),
    "turn-chain": (TurnTile(32, "shared", 1), TurnTile(64, "registers", 4), TurnTile(32, "cache", 2)),
    "turn-bare": (TurnTile(32, "registers", 2), TurnTile(128, "registers", 13)),
}
"""Kernels that prediction would not put first, with several of all that they state."""


def slabs() -> list[Trial]:
    """In half precision, channels last; some row-major too. Every kernel as prediction puts it, and `TILES`."""
    found = []
    for layer in asked(LAYERS):
        half = replace(layer, precision=DType.F16, tolerance=TOLERANCE)
        trials = trials_of(half, "portable", 4, without=("staged", "images", "gathered", "ahead", "fitted", "both"))
        both = layer.label in IN_BOTH_LAYOUTS or layer.label.startswith(("slab-long", "turn-", "batch-"))
        trials = [each for each in trials if both or each.step.problem.inputs[0].format.layout is not Layout.ROW]
        plain = [
            each for each in trials if each.shared is None and each.step.problem.outputs[0].format.dtype.nbytes == 2
        ]
        stated = {
            "batches": BATCHES, "held": HELD, "ahead": AHEAD, "fitted": FITTED, "both": BOTH, "slabs": TILES,
            "passes": PASSES, "turns": TURNS,
        }  # fmt: skip
        for algorithm, tile in ((name, tile) for name in stated for tile in stated[name].get(layer.label, ())):
            candidate = Candidate("portable", (("algorithm", algorithm), *tile.parameters), tile.settings)
            legal = (each for each in plain[::-1] if PORTABLE.refuse(each.step.problem, candidate, TARGET) is None)
            # GPUs before Hopper have no clusters.
            trials += [replace(trial, candidate=candidate) for trial in [next(legal, None)] if trial is not None]
        found += list({trial.label: trial for trial in trials}.values())
    return found
