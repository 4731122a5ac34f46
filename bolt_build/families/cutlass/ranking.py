"""The order in which candidates are offered: by prediction, but with one of each group among the first few."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.common.leaders import with_leaders
from bolt_build.families.cutlass.kinds.kind import Offer

_SURE = 3
"""So many first kernels are measured whatever others need."""


def ranked(offers: Sequence[Offer], first: int) -> list[Offer]:
    """Fastest first, but that the fastest of each group is among the `first` ones, or in front of all others where
    there are more groups."""
    found = sorted(offers, key=lambda offer: offer.seconds)
    ahead, others = with_leaders([offer.group for offer in found], first)
    untried = next((index for index in ahead if found[index].untried), None)
    if untried is not None and untried in ahead[_SURE:]:
        # Nothing is known of these by measurement: they are not left out for a prediction.
        ahead.remove(untried)
        ahead.insert(_SURE - 1, untried)
    return [found[index] for index in (*ahead, *others)]
