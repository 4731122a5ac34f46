"""Kernels of recurrent layers for a GPU."""

from __future__ import annotations

from families_harness import Layer
from gpu_harness import TARGET, Trial, trials_of

from bolt_build.families.base import Candidate
from bolt_build.families.portable.kernels.recurrent import FORM as ROWS


def of_rows(layer: Layer) -> list[Trial]:
    """A recurrent layer with every legal kernel of rows, of which a family offers those alone that are predicted to be
    fastest."""
    assert TARGET.gpu is not None
    found = trials_of(layer, "portable", 4)
    for step, shared in dict.fromkeys((trial.step, trial.shared) for trial in found):
        for tile in ROWS.tiles(step.problem, TARGET.gpu):
            candidate = Candidate("portable", (("algorithm", ROWS.algorithm), *tile.parameters), tile.settings)
            trial = Trial(layer, step, candidate, shared)
            if ROWS.refuse_tile(step.problem, tile, TARGET.gpu) is None and trial not in found:
                found.append(trial)
    return found
