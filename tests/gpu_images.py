"""Normalisations over the positions of images, whose pixels have any number of channels: groups of them, each by itself
and all of them; in planes of any extent; images that begin inside of an access; shares that shared memory keeps, and
those that are read again."""

from __future__ import annotations

from families_harness import Input, Layer
from families_layers import RELU, norm, stage
from gpu_harness import Trial
from gpu_staged import stated_trials

from bolt_build.families.portable.kernels.norm_gathered import GatherTile
from bolt_build.families.portable.kernels.norm_images import ImageTile
from bolt_build.graph.ops.norm import Norm


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
    (norm("planes-lines", Norm("variance", (2, 3), 1e-5), (2, 3, 91, 95), (3, 1, 1)),
     (ImageTile(2, 256, 541), GatherTile(3, 256))),
)  # fmt: skip
"""And kernels that prediction would not put first."""


def image_trials() -> list[Trial]:
    """What prediction puts first, and kernels that are stated."""
    return stated_trials(LAYERS, ("images-odd", "planes-chain"), {ImageTile: "images", GatherTile: "gathered"})
