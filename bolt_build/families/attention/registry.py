"""The kinds of kernels of this family, a line each."""

from __future__ import annotations

from bolt_build.families.attention import persistent, resident, spread, warp, warpgroup, windows
from bolt_build.families.attention.kind import Kind
from bolt_build.families.base import Candidate

KINDS: tuple[Kind, ...] = (warp.KIND, warpgroup.KIND, windows.KIND, persistent.KIND, resident.KIND, spread.KIND)


def kind_of(candidate: Candidate) -> Kind | None:
    """The kind of a candidate, None where it is none of any."""
    return next((kind for kind in KINDS if kind.tile_of(candidate) is not None), None)
