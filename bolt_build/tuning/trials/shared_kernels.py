"""Which candidates of many problems are worth compiling: those that a prediction puts first, and, among others that it
hardly tells apart, those whose kernels another problem needs anyway.

A kernel takes the compiler longer than the GPU takes to measure it for a dozen problems, and predictions are off by
more than `NEAR`. For ResNet-50 at batch 32 a quarter of the kernels need not be compiled, and of the candidates of
Wide ResNet-50-2 four in five find their kernels there afterwards (`kernel_reuse.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

SURE = 3
"""Candidates that are taken for their prediction alone."""
NEAR = 1.2
"""Predictions within this factor are not told apart."""


def choose(
    rankings: Sequence[Sequence[float]], limit: int, units: Callable[[int, int], Sequence[str]]
) -> tuple[tuple[int, ...], ...]:
    """For each problem the places of at most `limit` candidates, in their order.

    `rankings` are the predicted seconds of each problem's candidates, fastest first; `units(problem, place)` names the
    kernels that a candidate is compiled to. The first `SURE` are taken, then those not slower than `NEAR` times the one
    in place `limit`: whose kernels are needed anyway before others, and then in their order.
    """
    sure = min(SURE, limit)
    taken = [list(range(min(sure, len(ranking)))) for ranking in rankings]
    needed = {unit for problem, places in enumerate(taken) for place in places for unit in units(problem, place)}
    for problem, ranking in enumerate(rankings):
        if len(ranking) <= limit:
            rest = list(range(sure, len(ranking)))
        else:
            near = [at for at in range(sure, len(ranking)) if ranking[at] <= NEAR * ranking[limit - 1]]
            rest = sorted(near, key=lambda at: not needed.issuperset(units(problem, at)))[: limit - sure]
        taken[problem] += sorted(rest)
        needed.update(unit for place in rest for unit in units(problem, place))
    return tuple(map(tuple, taken))
