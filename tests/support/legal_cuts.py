"""All kernels of a form that a problem may have, of which prediction would offer a few."""

from __future__ import annotations

from gpu_harness import TARGET

from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.portable.form import AnyForm, candidate_of


def cuts_of(form: AnyForm, problem: KernelProblem) -> list[Candidate]:
    """Legal ones, however slow; none where the form declines the problem."""
    assert TARGET.gpu is not None
    if not form.serves(problem) or form.refuse_problem(problem, TARGET.gpu) is not None:
        return []
    tiles = form.tiles(problem, TARGET.gpu)
    legal = (tile for tile in tiles if form.refuse_tile(problem, tile, TARGET.gpu) is None)
    return [candidate_of("portable", form.algorithm, tile) for tile in legal]
