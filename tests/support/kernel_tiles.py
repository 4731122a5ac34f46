"""Tiles of the tensor-core kernels as candidates state them, for tests that look inside."""

from __future__ import annotations

from typing import Any

from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.pooled import Pooled, PooledTile
from bolt_build.families.cutlass.one_product import ProductTile
from bolt_build.families.cutlass.product_chain import ChainKind, ChainTile
from bolt_build.families.cutlass.registry import kind_of
from bolt_build.targets import Target

FAMILY = Cutlass()


def candidate_of(tile: ProductTile | ChainTile | PooledTile) -> Candidate:
    """The kernel with the tile."""
    return Candidate(FAMILY.name, tile.parameters)


def tile_of(problem: KernelProblem, candidate: Candidate) -> Any:
    """The tile of a candidate for several nodes."""
    kind = kind_of(problem, candidate)
    assert isinstance(kind, ChainKind | Pooled)
    return kind.tile_of(candidate)


def ranked(problem: KernelProblem, target: Target) -> tuple[list[tuple[float, Any]], tuple[Refusal, ...]]:
    """Tiles for several nodes with their predicted seconds, in the order of the candidates; and why others are none."""
    candidates, refusals = FAMILY.candidates(problem, target)
    found = [(FAMILY.predict(problem, each, target), tile_of(problem, each)) for each in candidates]
    return found, refusals
