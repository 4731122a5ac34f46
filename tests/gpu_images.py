"""Normalisations over the positions of images, channels last, whose pixels have any number of channels: groups of them, each
by itself and all of them; images that begin inside of an access; shares that shared memory keeps, and those that are read
again."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, norm, stage
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norm_gathered import GatherTile
from bolt_build.families.portable.kernels.norm_images import ImageTile
from bolt_build.graph.ops.norm import Norm

PORTABLE = Portable()


def groups(many: int) -> Norm:
    return Norm("variance", (1, 2, 3), 1e-5, many)


LAYERS: tuple[tuple[Layer, tuple[ImageTile | GatherTile, ...]], ...] = (
    (norm("images-33", groups(3), (3, 33, 24, 24), (33, 1, 1)),
     (ImageTile(4, 256, 594), ImageTile(8, 256, 66), ImageTile(2, 256, 264), GatherTile(6, 256))),
    (norm("images-90", groups(9), (3, 90, 12, 8), (90, 1, 1)), (ImageTile(1, 256, 180), GatherTile(3, 512))),
    (norm("images-odd", groups(3), (5, 21, 13, 11), (21, 1, 1)), (ImageTile(2, 256, 189), ImageTile(1, 256, 126), GatherTile(2, 256))),
    (norm("images-each", Norm("variance", (2, 3), 1e-5), (3, 5, 19, 23), (5, 1, 1)), (ImageTile(2, 256, 140), GatherTile(2, 256))),
    (
        Layer("images-chain", groups(5), (Input((2, 45, 9, 10)), Input((45, 1, 1), True), Input((45, 1, 1), True),
              Input((2, 45, 9, 10)), Input((45, 1, 1), True)), (stage("add", 3), RELU, stage("mul", 4))),
        (ImageTile(1, 256, 270), GatherTile(2, 256)),
    ),
    (norm("images-all", groups(1), (2, 12, 15, 7), (12, 1, 1)), (ImageTile(2, 256, 81),)),
    (Layer("images-rms", Norm("rms", (1, 2, 3), 1e-5, 11), (Input((3, 33, 9, 7)), Input((33, 1, 1), True))),
     (ImageTile(1, 256, 264),)),
)  # fmt: skip
"""And kernels that prediction would not put first."""
SINGLE = ("images-odd",)
FORMS: dict[type, str] = {ImageTile: "images", GatherTile: "gathered"}


def image_trials() -> list[Trial]:
    """In half precision, some in single too: what prediction puts first, and those that are stated."""
    found = []
    for layer, tiles in LAYERS:
        for precision in (DType.F16, DType.F32) if layer.label in SINGLE else (DType.F16,):
            half = precision is DType.F16
            of = replace(layer, precision=precision, tolerance=TOLERANCE if half else 2e-5)
            of = of if half else replace(of, label=f"single-{of.label}")
            first: dict[object, Trial] = {}
            for trial in trials_of(of, "portable", 19):
                if dict(trial.candidate.parameters)["algorithm"] in FORMS.values():
                    first.setdefault((trial.step, trial.shared), trial)
            found += first.values()
            for tile in tiles:
                candidate = Candidate("portable", (("algorithm", FORMS[type(tile)]), *tile.parameters))
                legal = (t for t in first.values() if PORTABLE.refuse(t.step.problem, candidate, TARGET) is None)
                found += [replace(trial, candidate=candidate) for trial in legal if trial.shared is None]
    return list({trial.label: trial for trial in found}.values())
