"""Masks that show each query the keys up to its own place, or around it, said without the mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.graph.ir import Array
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.recognise.attention_scores import LEAST


@dataclass(frozen=True)
class Seen:
    """What attention has of the same names."""

    causal: bool
    window: int = 0

    def within(self, other: Seen) -> Seen:
        """What two masks beside each other show: both were found among as many keys."""
        windows = [each for each in (self.window, other.window) if each]
        return Seen(self.causal or other.causal, min(windows, default=0))


def seen_of(array: Array, queries: int, keys: int) -> Seen | None:
    """What a mask of zeros and of what hides keys shows, where that is a triangle or a band."""
    if array.shape[-2:] != (queries, keys) or array.size != queries * keys or queries == 1:
        return None
    mask = array.reshape(queries, keys)
    ahead, behind = _run(mask[0]), _run(mask[-1, ::-1])
    if ahead == 1 and _shows(mask, Seen(True)):
        return Seen(True)
    if queries != keys or not ahead or behind == keys:
        return None
    band = Seen(ahead == 1, behind)
    return band if (band.causal or ahead == behind) and _shows(mask, band) else None


def _run(row: Array) -> int:
    """How many keys a row shows before the first that it hides."""
    hidden = np.flatnonzero(row)
    return int(hidden[0]) if len(hidden) else len(row)


def _shows(mask: Array, what: Seen) -> bool:
    seen = Attention(1, 1, 1.0, what.causal, window=what.window).seen(*mask.shape)
    return bool((mask[seen] == 0.0).all() and (mask[~seen] <= LEAST).all())
