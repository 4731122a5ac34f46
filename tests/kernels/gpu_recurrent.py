"""Kernels of recurrent layers for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from families_harness import Layer
from gpu_harness import TARGET, Trial, trials_of

from bolt_build.families.base import KernelProblem
from bolt_build.families.portable.form import AnyForm, candidate_of
from bolt_build.families.portable.kernels.recurrent.half_recurrent import FORM as HALVES
from bolt_build.families.portable.kernels.recurrent.recurrent import FORM as ROWS


def of_rows(layer: Layer) -> list[Trial]:
    """A recurrent layer with every legal kernel of rows and of tensor cores, of which a family offers those alone that
    are predicted to be fastest."""
    found = trials_of(layer, "portable", 4)
    for step, shared in dict.fromkeys((trial.step, trial.shared) for trial in found):
        for form, tile in _tiles(step.problem):
            trial = Trial(layer, step, candidate_of("portable", form.algorithm, tile), shared)
            if trial not in found:
                found.append(trial)
    return found


def _tiles(problem: KernelProblem) -> Iterator[tuple[AnyForm, Any]]:
    """Of tensor cores also those that keep less than has room in shared memory."""
    assert TARGET.gpu is not None
    for form in (ROWS, HALVES):
        if form.refuse_problem(problem, TARGET.gpu) is not None:
            continue
        for tile in form.tiles(problem, TARGET.gpu):
            for kept in (tile,) if form is ROWS else {replace(tile, kept=kept) for kept in {tile.kept, 1}}:
                if form.refuse_tile(problem, kept, TARGET.gpu) is None:
                    yield form, kept
