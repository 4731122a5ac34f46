"""A kernel family with several candidates a problem, for tests of what tuning chooses from."""

from __future__ import annotations

from dataclasses import dataclass

from planner_fakes import Fake

from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.graph.ops.moves.shape import Convert, Identity
from bolt_build.targets import Target


@dataclass(frozen=True)
class Tiled(Fake):
    """Tiles of so many elements, a larger one predicted slower by `step` seconds, none larger than `largest`.

    Conversions and copies have one candidate. `swizzles` of every tile are worth a measurement, each predicted as fast
    as it.
    """

    name: str = "tiled"
    tiles: tuple[int, ...] = (1, 2, 4)
    largest: int = 4
    step: float = 1e-6
    swizzles: tuple[int, ...] = ()

    def tile(self, size: int, swizzle: int | None = None) -> Candidate:
        settings = () if swizzle is None else (("swizzle", swizzle),)
        return Candidate(self.name, (("tile", size),), settings)

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        if isinstance(problem.op, Convert | Identity):
            return (Candidate(self.name),), ()
        legal = tuple(self.tile(size) for size in self.tiles if size <= self.largest)
        large = (size for size in self.tiles if size > self.largest)
        return legal, tuple(Refusal(self.name, f"tile {size}", f"larger than {self.largest}") for size in large)

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        return tuple(Candidate(self.name, candidate.parameters, (("swizzle", s),)) for s in self.swizzles)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return self.step * int(dict(candidate.parameters).get("tile", 1))
