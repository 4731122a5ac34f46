"""How the plain kernel of an operator is cut for a GPU, where a measurement could find another cut to be faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bolt_build.families.base import Candidate, KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.text_form import Reader
from bolt_build.families.portable.form import Tile, candidate_of, tile_of

DIRECT = "direct"
"""What candidates call the plain kernel."""

T = TypeVar("T", bound=Tile)


@dataclass(frozen=True)
class Plain(Generic[T]):
    """The cut of a plain kernel, which its candidates on GPUs state.

    `usual` is the one that is offered; None of a problem that leaves no choice. Candidates that state none, as those of
    earlier locks, have it too: who offers another leaves this one to them. `refuse` says why a cut is not legal, `read`
    finds it in what a candidate states, and `emit` asks nothing of `usual`.
    """

    usual: Callable[[KernelProblem], T | None]
    read: Callable[[Reader], T]
    refuse: Callable[[KernelProblem, T], str | None]
    emit: Callable[[KernelProblem, T | None, StepExpressions], StepCode]

    def candidate(self, family: str, problem: KernelProblem) -> Candidate:
        """The kernel as it is offered."""
        tile = self.usual(problem)
        return Candidate(family, (("algorithm", DIRECT),)) if tile is None else candidate_of(family, DIRECT, tile)

    def refuse_candidate(self, problem: KernelProblem, candidate: Candidate) -> str | None:
        """Why a candidate that names the kernel is none for the problem."""
        if candidate == Candidate(candidate.family, (("algorithm", DIRECT),)):
            return None
        try:
            return self.refuse(problem, tile_of(candidate, DIRECT, self.read))
        except ValueError as error:
            return str(error)

    def emit_usual(self, problem: KernelProblem, at: StepExpressions) -> StepCode:
        """The kernel as hosts have it, to which no cut makes a difference, and candidates that state none."""
        return self.emit(problem, self.usual(problem), at)

    def emit_candidate(self, problem: KernelProblem, candidate: Candidate, at: StepExpressions) -> StepCode:
        """The kernel as a candidate states it. Raises ValueError where it states something else."""
        return self.emit(problem, tile_of(candidate, DIRECT, self.read), at)


AnyPlain = Plain[Any]
