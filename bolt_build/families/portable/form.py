"""Kernels of an operator on GPUs that stand beside the plain one, and are told apart by what their candidates state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bolt_build.families.base import Candidate, KernelProblem, Refusal, StepCode, StepExpressions
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.reason import Reason, within
from bolt_build.targets import Gpu, Target

MOST_KERNELS, MOST_VARIANTS = 3, 12
"""Kernels of a form that are offered, and settings of each that are worth a measurement beside its first ones."""


class Tile(Protocol):
    """How one kernel cuts a problem: what it is compiled with, and its arguments. Neither names the form."""

    @property
    def parameters(self) -> Named: ...

    @property
    def settings(self) -> Named: ...


T = TypeVar("T", bound=Tile)


def candidate_of(family: str, algorithm: str, tile: Tile) -> Candidate:
    """A kernel as candidates state it."""
    return Candidate(family, (("algorithm", algorithm), *tile.parameters), tile.settings)


def tile_of(candidate: Candidate, algorithm: str, read: Callable[[Reader], T]) -> T:
    """What a candidate of the algorithm states. Raises ValueError where it states not all, or something else."""
    reader = Reader((*candidate.parameters[1:], *candidate.settings))
    try:
        tile = read(reader)
        reader.end()
    except ValueError:
        tile = None
    if tile is None or candidate_of(candidate.family, algorithm, tile) != candidate:
        raise ValueError(f"{candidate} states not all that its kernel takes, or something else")
    return tile


@dataclass(frozen=True)
class Form(Generic[T]):
    """Kernels of one `algorithm`, as candidates call it, for the problems that `serves` takes.

    `refuse` says why none of them is for a problem, `tiles` gives those that its shape allows, and `refuse_tile` says
    why one of these is not legal on a GPU. `read` finds a tile in what a candidate states; it raises ValueError for
    what no kernel of the form states. `seconds` predicts, `emit` asks nothing of it.
    """

    algorithm: str
    serves: Callable[[KernelProblem], bool]
    refuse: Callable[[KernelProblem, Gpu], str | None]
    tiles: Callable[[KernelProblem, Gpu], Iterable[T]]
    refuse_tile: Callable[[KernelProblem, T, Gpu], str | None]
    seconds: Callable[[KernelProblem, T, Target], float]
    read: Callable[[Reader], T]
    emit: Callable[[KernelProblem, T, StepExpressions], StepCode]

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        """Why none of its kernels is for the problem, beginning with the algorithm; None where one may be."""
        reason = self.refuse(problem, gpu)
        return None if reason is None else within(self.algorithm, reason)

    def offers(
        self, family: str, problem: KernelProblem, target: Target
    ) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """Of the compiled kernels that are predicted to be fastest each with its fastest settings; and why others are
        none, tiles of one reason once."""
        legal, refused = _legal(self, family, problem, target)
        first: dict[Named, Candidate] = {}
        for _, candidate in legal:
            first.setdefault(candidate.parameters, candidate)
        reason = Reason("{} other kernels of its form are predicted to be faster", MOST_KERNELS)
        slower = (Refusal(family, str(candidate), reason) for candidate in tuple(first.values())[MOST_KERNELS:])
        return tuple(first.values())[:MOST_KERNELS], (*refused, *slower)

    def variants(
        self, family: str, problem: KernelProblem, candidate: Candidate, target: Target
    ) -> tuple[Candidate, ...]:
        """The same kernel with other settings, those that are predicted to be fastest."""
        legal, _ = _legal(self, family, problem, target)
        same = [each for _, each in legal if each.parameters == candidate.parameters and each != candidate]
        return tuple(same[:MOST_VARIANTS])

    def tile_of(self, candidate: Candidate) -> T:
        """What a candidate of the form states. Raises ValueError where it states not all, or something else."""
        return tile_of(candidate, self.algorithm, self.read)

    def refuse_candidate(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        """Why a candidate that names the form is none for the problem; predictions have no part in it."""
        assert target.gpu is not None, "forms are asked about GPUs alone"
        if not self.serves(problem):
            return f"{candidate} is none of its candidates"
        if (reason := self.refuse_problem(problem, target.gpu)) is not None:
            return reason
        try:
            tile = self.tile_of(candidate)
        except ValueError as error:
            return str(error)
        return self.refuse_tile(problem, tile, target.gpu)


AnyForm = Form[Any]


@functools.lru_cache(maxsize=256)
def _legal(
    form: AnyForm, family: str, problem: KernelProblem, target: Target
) -> tuple[tuple[tuple[float, Candidate], ...], tuple[Refusal, ...]]:
    """Legal candidates with their predicted seconds, fastest first. Remembered: tuning asks for variants of each kernel
    that is offered."""
    assert target.gpu is not None, "forms are asked about GPUs alone"
    if not form.serves(problem):
        return (), ()
    if (reason := form.refuse_problem(problem, target.gpu)) is not None:
        return (), (Refusal(family, problem.op.kind, reason),)
    legal, reasons = list[tuple[float, Candidate]](), dict[str, Refusal]()
    for tile in form.tiles(problem, target.gpu):
        candidate = candidate_of(family, form.algorithm, tile)
        if (why := form.refuse_tile(problem, tile, target.gpu)) is None:
            legal.append((form.seconds(problem, tile, target), candidate))
        else:
            words = why.form if isinstance(why, Reason) else why
            reasons.setdefault(words, Refusal(family, str(candidate), why))
    legal.sort(key=lambda each: (each[0], str(each[1])))
    return tuple(legal), tuple(reasons.values())
