"""Kinds of kernels for several nodes, whose candidates are tiles: what they have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.families.common.stated import Stated, is_read, tile_of
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import FAMILY, Offer, Offers, gpu_of
from bolt_build.targets import Gpu, Target

T = TypeVar("T", bound=Stated)
S = TypeVar("S")


class TileKind(ABC, Generic[T, S]):
    """A kind whose candidate is a tile `T`. `S` is what a kernel computes: a problem as products."""

    @abstractmethod
    def read_tile(self, reader: Reader) -> T:
        """The tile that parameters state. Raises ValueError."""

    @abstractmethod
    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        """Why no tile computes the problem, None where some may."""

    @abstractmethod
    def computed(self, problem: KernelProblem) -> S:
        """What the kernels compute for a problem that is not refused."""

    @abstractmethod
    def tiles_for(self, what: S, gpu: Gpu) -> tuple[tuple[T, ...], str | None]:
        """The tiles that may be some, and why there are not more, where there is a reason that all share."""

    @abstractmethod
    def refuse_tile(self, tile: T, what: S, gpu: Gpu) -> str | None:
        """Why no kernel with the tile computes it on this GPU, None where one does."""

    @abstractmethod
    def seconds(self, problem: KernelProblem, what: S, candidate: Candidate, target: Target) -> float:
        """Predicted time of a candidate's kernel."""

    @abstractmethod
    def group(self, tile: T) -> str:
        """`Offer.group`."""

    def usual(self, tile: T, what: S, target: Target) -> Named:
        """The settings that a tile is offered with: none."""
        return ()

    def refuse_settings(self, tile: T, what: S, candidate: Candidate) -> str | None:
        """Why a candidate cannot have its settings, None where it can."""
        return f"{candidate} is none of its candidates" if candidate.settings else None

    def tile_of(self, candidate: Candidate) -> T:
        """The tile that a candidate of this kind states. Raises ValueError for one that is of another kind."""
        return tile_of(candidate, self.read_tile)

    def reads(self, candidate: Candidate) -> bool:
        return is_read(self.tile_of, candidate)

    def offers(self, problem: KernelProblem, target: Target) -> Offers:
        gpu = gpu_of(target)
        if (reason := self.refuse_problem(problem, gpu)) is not None:
            return Offers(none=(reason,))
        what, found, refusals = self.computed(problem), [], []
        tiles, none = self.tiles_for(what, gpu)
        for tile in tiles:
            if (why := self.refuse_tile(tile, what, gpu)) is None:
                candidate = Candidate(FAMILY, tile.parameters, self.usual(tile, what, target))
                found.append(Offer(self.seconds(problem, what, candidate, target), candidate, self.group(tile)))
            else:
                refusals.append(Refusal(FAMILY, f"tile {tile}", why))
        return Offers(tuple(found), () if none is None else (none,), tuple(refusals))

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        gpu = gpu_of(target)
        if (reason := self.refuse_problem(problem, gpu)) is not None:
            return reason
        what, tile = self.computed(problem), self.tile_of(candidate)
        tiles, none = self.tiles_for(what, gpu)
        if tile not in tiles:
            return none or f"{candidate} is none of its candidates"
        return self.refuse_settings(tile, what, candidate) or self.refuse_tile(tile, what, gpu)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return self.seconds(problem, self.computed(problem), candidate, target)

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """None: a tile has the settings that are foreseen best."""
        return ()
