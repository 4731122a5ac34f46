"""The kinds of kernels of this family, a line each: for a convolution alone, and `SORTS` for it with neighbours."""

from __future__ import annotations

from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.grouped.kind import Kind
from bolt_build.families.grouped.kinds import (
    banded,
    deep,
    depthwise,
    diagonal,
    down,
    rows,
    sliding,
    tensor_core,
    volume,
)
from bolt_build.families.grouped.neighbours import chain, normed
from bolt_build.families.grouped.shape import Shape
from bolt_build.families.grouped.sort import Sort

KINDS: tuple[Kind, ...] = (
    depthwise.KIND, rows.KIND, diagonal.KIND, tensor_core.KIND, sliding.KIND, deep.KIND, banded.KIND,
    down.KIND,
)  # fmt: skip

VOLUMES: tuple[Kind, ...] = (volume.KIND,)
"""Those for windows over depths, rows and columns."""

SORTS: tuple[Sort, ...] = (chain, normed)


def sort_of(problem: KernelProblem) -> Sort | None:
    """The sort that a problem is for; None where it is a convolution alone, or with its means."""
    return next((sort for sort in SORTS if sort.serves(problem)), None)


def kinds_for(shape: Shape) -> tuple[Kind, ...]:
    """The kinds that a problem is for: one at least."""
    if shape.depths is not None:
        return VOLUMES
    return tuple(kind for kind in KINDS if kind.serves(shape))


def kind_of(shape: Shape, candidate: Candidate) -> Kind | None:
    """The kind of a candidate for the problem, None where it is none of any."""
    return next((kind for kind in kinds_for(shape) if kind.tile_of(candidate) is not None), None)
