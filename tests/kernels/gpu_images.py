"""Normalisations over the positions of images, whose pixels have any number of channels: groups of them, each by itself
and all of them; in planes of any extent; images that begin inside of an access; shares that shared memory keeps, and
those that are read again; images that are whole accesses, in registers, one after the other too."""

from __future__ import annotations

from families_harness import Input, Layer
from families_layers import RELU, norm, stage
from gpu_harness import Trial
from gpu_staged import stated_trials

from bolt_build.families.portable.kernels.norms.norm_ahead import AheadTile
from bolt_build.families.portable.kernels.norms.norm_both import BothTile
from bolt_build.families.portable.kernels.norms.norm_gathered import GatherTile
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_images import ImageTile
from bolt_build.families.portable.kernels.norms.norm_paired import PairTile
from bolt_build.graph.ops.norms.norm import Norm


def groups(many: int) -> Norm:
    return Norm("variance", (1, 2, 3), 1e-5, many)


LAYERS: tuple[tuple[Layer, tuple[ImageTile | GatherTile, ...]], ...] = (
    (norm("images-33", groups(3), (3, 33, 24, 24), (33, 1, 1)),
     (ImageTile(4, 256, 594), ImageTile(8, 256, 66), ImageTile(2, 256, 264), GatherTile(6, 256))),
    (norm("images-90", groups(9), (3, 90, 12, 8), (90, 1, 1)), (ImageTile(1, 256, 180), GatherTile(3, 512))),
    (norm("images-odd", groups(3), (5, 21, 13, 11), (21, 1, 1)),
     (ImageTile(2, 256, 189), ImageTile(1, 256, 126), GatherTile(2, 256))),
    (norm("images-each", Norm("variance", (2, 3), 1e-5), (3, 5, 19, 23), (5, 1, 1)),
     (ImageTile(2, 256, 140), GatherTile(2, 256))),
    (
        Layer("images-chain", groups(5), (Input((2, 45, 9, 10)), Input((45, 1, 1), True), Input((45, 1, 1), True),
              Input((2, 45, 9, 10)), Input((45, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (ImageTile(1, 256, 270), GatherTile(2, 256)),
    ),
    (norm("images-all", groups(1), (2, 12, 15, 7), (12, 1, 1)), (ImageTile(2, 256, 81),)),
    (Layer("images-rms", Norm("rms", (1, 2, 3), 1e-5, 11), (Input((3, 33, 9, 7)), Input((33, 1, 1), True))),
     (ImageTile(1, 256, 264),)),
    (norm("planes-groups", groups(3), (3, 9, 7, 11), (9, 1, 1)), (ImageTile(2, 256, 15), GatherTile(1, 256))),
    (
        Layer("planes-chain", groups(2), (Input((2, 6, 21, 51)), Input((6, 1, 1), True), Input((6, 1, 1), True),
              Input((2, 6, 21, 51)), Input((6, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (ImageTile(4, 256, 101), ImageTile(1, 256, 146), GatherTile(2, 256)),
    ),
    (norm("images-large", groups(4), (1, 24, 300, 299), (24, 1, 1)), (GatherTile(20, 256),)),
    (norm("images-parts", Norm("variance", (2, 3), 1e-5), (2, 9, 170, 171), (9, 1, 1)), (GatherTile(130, 256),)),
    (norm("images-elements", groups(1), (3, 5, 31, 27), (5, 31, 27)), (ImageTile(2, 256, 262), GatherTile(3, 256))),
    (
        Layer("images-elements-rms", Norm("rms", (1,), 1e-5), (Input((4, 4411)), Input((4411,)), Input((4, 4411))),
              (stage("add", 2), RELU)),
        (ImageTile(1, 256, 552),),
    ),
    (norm("planes-lines", Norm("variance", (2, 3), 1e-5), (2, 3, 91, 95), (3, 1, 1)),
     (ImageTile(2, 256, 541), GatherTile(3, 256))),
)  # fmt: skip
"""And kernels that prediction would not put first."""
SINGLE = ("images-odd", "planes-chain")

PAIRED: tuple[tuple[Layer, tuple[PairTile, ...]], ...] = (
    (norm("paired-40", groups(4), (2, 40, 82, 81), (40, 1, 1)), (PairTile(4, 2, 256, 8415), PairTile(5, 1, 512, 2550))),
    (
        Layer("paired-33", groups(3), (Input((3, 33, 91, 91)), Input((33, 1, 1), True), Input((33, 1, 1), True),
              Input((3, 33, 91, 91)), Input((33, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (PairTile(6, 2, 256, 5082), PairTile(8, 8, 256, 4389)),
    ),
    (norm("paired-each", Norm("variance", (2, 3), 1e-5), (1, 24, 105, 106), (24, 1, 1)), (PairTile(8, 4, 256, 4335),)),
    (norm("paired-planes", groups(1), (2, 6, 211, 209), (6, 1, 1)), (PairTile(4, 4, 512, 7168),)),
    (norm("paired-elements", groups(1), (2, 8, 182, 182), (8, 182, 182)), (PairTile(6, 2, 256, 4608),)),
    (Layer("paired-rms", Norm("rms", (1, 2, 3), 1e-5, 8), (Input((2, 16, 128, 129)), Input((16, 1, 1), True))),
     (PairTile(4, 1, 512, 5120),)),
)  # fmt: skip
"""By two kernels beside each other."""

IN_REGISTERS: tuple[tuple[Layer, tuple[HeldTile | AheadTile, ...]], ...] = (
    (norm("registers-33", groups(3), (3, 33, 24, 24), (33, 1, 1)),
     (HeldTile(33, 1, 288, 9, 1), AheadTile(HeldTile(33, 2, 128, 12, 1), 3))),
    (norm("registers-90", groups(9), (3, 90, 12, 8), (90, 1, 1)),
     (HeldTile(45, 4, 192, 2, 1), AheadTile(HeldTile(45, 1, 96, 12, 1), 2))),
    (norm("registers-each", Norm("variance", (2, 3), 1e-5), (3, 5, 8, 23), (5, 1, 1)),
     (HeldTile(5, 2, 96, 1, 1), AheadTile(HeldTile(5, 1, 96, 2, 1), 3))),
    (
        Layer("registers-chain", groups(5), (Input((3, 45, 9, 16)), Input((45, 1, 1), True), Input((45, 1, 1), True),
              Input((3, 45, 9, 16)), Input((45, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (HeldTile(45, 2, 96, 5, 1), AheadTile(HeldTile(45, 4, 96, 3, 1), 2)),
    ),
    (norm("registers-all", groups(1), (3, 12, 15, 8), (12, 1, 1)),
     (HeldTile(3, 4, 96, 1, 1), AheadTile(HeldTile(3, 1, 96, 2, 1), 2))),
    (Layer("registers-rms", Norm("rms", (1, 2, 3), 1e-5, 4), (Input((3, 12, 9, 6)), Input((12, 1, 1), True))),
     (HeldTile(3, 1, 96, 1, 1), AheadTile(HeldTile(3, 2, 96, 1, 1), 3))),
    (
        Layer("registers-odd-planes", groups(3), (Input((3, 9, 7, 11)), Input((9, 1, 1), True), Input((9, 1, 1), True),
              Input((3, 9, 7, 11)), Input((9, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (HeldTile(1, 1, 96, 1, 1), AheadTile(HeldTile(1, 2, 96, 1, 1), 4)),
    ),
    (norm("registers-odd", groups(3), (5, 21, 13, 11), (21, 1, 1)),
     (HeldTile(21, 2, 96, 3, 1), AheadTile(HeldTile(21, 1, 128, 3, 1), 3))),
    (norm("registers-odd-each", Norm("variance", (2, 3), 1e-5), (5, 5, 13, 11), (5, 1, 1)),
     (HeldTile(5, 2, 96, 1, 1), AheadTile(HeldTile(5, 1, 32, 4, 1), 2))),
    (
        Layer("registers-odd-chain", groups(5), (Input((3, 45, 9, 7)), Input((45, 1, 1), True), Input((45, 1, 1), True),
              Input((3, 45, 9, 7)), Input((45, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (HeldTile(45, 4, 96, 1, 1), AheadTile(HeldTile(45, 1, 192, 2, 1), 2)),
    ),
    (norm("registers-odd-all", groups(1), (3, 12, 15, 7), (12, 1, 1)),
     (HeldTile(3, 4, 96, 1, 1), AheadTile(HeldTile(3, 1, 96, 2, 1), 2))),
    (Layer("registers-odd-rms", Norm("rms", (1, 2, 3), 1e-5), (Input((3, 3, 23, 19)), Input((3, 1, 1), True))),
     (HeldTile(1, 4, 96, 1, 1), AheadTile(HeldTile(1, 1, 96, 2, 1), 2))),
    (norm("registers-odd-many", Norm("variance", (2, 3), 1e-5), (3, 5, 53, 61), (5, 1, 1)),
     (HeldTile(5, 2, 96, 11, 1), AheadTile(HeldTile(5, 2, 96, 11, 1), 2))),
    (norm("registers-even-planes", groups(3), (2, 12, 6, 12), (12, 1, 1)),
     (HeldTile(1, 2, 96, 1, 1), AheadTile(HeldTile(1, 1, 96, 1, 1), 3))),
    (
        Layer("registers-planes", groups(4), (Input((2, 32, 7, 9)), Input((32, 1, 1), True), Input((32, 1, 1), True),
              Input((2, 32, 7, 9)), Input((32, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (HeldTile(1, 1, 96, 1, 1), AheadTile(HeldTile(1, 2, 96, 1, 1), 3)),
    ),
)  # fmt: skip
IN_REGISTERS_SINGLE = (
    "registers-chain",
    "registers-planes",
    "registers-odd-planes",
    "registers-odd",
    "registers-odd-chain",
)
FITTED = {"registers-90": (HeldTile(45, 5, 96, 3, 1),), "registers-odd-chain": (HeldTile(45, 7, 96, 1, 1),)}
"""In clusters of other sizes."""
BOTH = {
    "registers-33": (BothTile(HeldTile(33, 5, 96, 8, 2), 5),),
    "registers-chain": (BothTile(HeldTile(45, 2, 96, 5, 3), 2),),
    "registers-odd": (BothTile(HeldTile(21, 2, 64, 3, 2), 1),),
    "registers-odd-chain": (BothTile(HeldTile(45, 1, 96, 4, 2), 2),),
    "registers-odd-many": (BothTile(HeldTile(5, 1, 96, 22, 2), 9), BothTile(HeldTile(5, 3, 128, 6, 2), 3)),
    "registers-odd-all": (BothTile(HeldTile(3, 1, 32, 6, 2), 2),),
    "registers-odd-rms": (BothTile(HeldTile(1, 1, 64, 3, 2), 1),),
}
"""Partly in shared memory."""


def image_trials() -> list[Trial]:
    """What prediction puts first, and kernels that are stated."""
    in_registers = stated_trials(IN_REGISTERS, IN_REGISTERS_SINGLE, {HeldTile: "held", AheadTile: "ahead"})
    fitted = [(layer, FITTED[layer.label]) for layer, _ in IN_REGISTERS if layer.label in FITTED]
    in_registers += stated_trials(fitted, (), {HeldTile: "fitted"})
    both = [(layer, BOTH[layer.label]) for layer, _ in IN_REGISTERS if layer.label in BOTH]
    in_registers += stated_trials(both, ("registers-odd-chain",), {BothTile: "both"})
    paired = stated_trials(PAIRED, (), {PairTile: "paired"})
    return stated_trials(LAYERS, SINGLE, {ImageTile: "images", GatherTile: "gathered"}) + paired + in_registers
