"""Regions of images whose channels lie last, in words of channels: one word a thread, and two. Windows times filters
that are data, in words too."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE
from region_layers import REGIONS, WEIGHED

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.weighed_windows import WindowTile


def _in_half(layer: Layer, channels: int) -> Layer:
    images, *others = layer.inputs
    wide = replace(images, shape=(images.shape[0], channels, *images.shape[2:]))
    label = f"half-{layer.label}-{channels}"
    return replace(layer, label=label, inputs=(wide, *others), precision=DType.F16, tolerance=TOLERANCE)


LAYERS = tuple(
    _in_half(layer, channels) for layer in REGIONS if layer.label.startswith("regions-words-") for channels in (24, 48)
)
PORTABLE, TILES = Portable(), ((8, 4), (8, 1), (4, 1), (2, 4), (3, 1))
WINDOWS = tuple(replace(each, label=f"half-{each.label}", precision=DType.F16, tolerance=TOLERANCE) for each in WEIGHED)


def _legal(trial: Trial) -> list[Candidate]:
    """Other tiles of windows than the one that is offered."""
    tiles = (Candidate("portable", (("algorithm", "direct"), *WindowTile(*each).parameters)) for each in TILES)
    return [each for each in tiles if PORTABLE.refuse(trial.step.problem, each, TARGET) is None]


def region_trials() -> list[Trial]:
    """With the words that are offered, and with two where there are as many."""
    found = [trial for layer in asked(LAYERS) for trial in trials_of(layer, "portable")]
    windows = [trial for layer in asked(WINDOWS) for trial in trials_of(layer, "portable")]
    windows += [replace(trial, candidate=tile) for trial in windows for tile in _legal(trial)]
    found += {trial.label: trial for trial in windows}.values()  # filters lie either way
    two = Candidate("portable", (("algorithm", "direct"), ("words", 2)))
    offered = (trial for trial in found if "words" in dict(trial.candidate.parameters))
    return found + [replace(each, candidate=two) for each in offered if each.layer.label.endswith("-48")]
