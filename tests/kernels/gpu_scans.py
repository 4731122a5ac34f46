"""Kernels of recurrences whose lanes are shared by threads, each as often as is legal."""

from __future__ import annotations

from dataclasses import replace

from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE
from scan_layers import SCANS

from bolt_build.dtypes import DType
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.recurrent.state_scan import FORM

LAYERS = tuple(replace(each, label=f"half-{each.label}", precision=DType.F16, tolerance=TOLERANCE) for each in SCANS)


def scan_trials() -> list[Trial]:
    """Every legal tile in half precision."""
    assert TARGET.gpu is not None
    found: list[Trial] = []
    for layer in asked(LAYERS):
        for step, shared in dict.fromkeys((trial.step, trial.shared) for trial in trials_of(layer, "portable")):
            tiles = FORM.tiles(step.problem, TARGET.gpu)
            legal = (tile for tile in tiles if FORM.refuse_tile(step.problem, tile, TARGET.gpu) is None)
            found += (Trial(layer, step, candidate_of("portable", FORM.algorithm, tile), shared) for tile in legal)
    return found
