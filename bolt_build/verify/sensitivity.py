"""How much a network amplifies a small change of its input, tensor by tensor: measured in the reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bolt_build.graph.ir import Array
from bolt_build.verify.compare import difference
from bolt_build.verify.reference import Reference
from bolt_build.verify.taps import Tap, groups

CHANGE = 1e-3
"""Of the input's standard deviation: far above roundings in fp32, small enough for an answer in proportion."""


def amplification(
    reference: Reference, taps: tuple[Tap, ...], feeds: Mapping[str, Array], seed: int
) -> dict[str, float]:
    """For each observable tensor, the relative rms change that a relative change of 1 in the inputs would make.

    Never less than for the tensors it is made from: what levels out a change here (a Softmax that is sure of its
    class) may pass it on for the next input.
    """
    changed = {name: _changed(array, seed + index) for index, (name, array) in enumerate(feeds.items())}
    found: dict[str, float] = {}
    for group in groups(tuple(tap for tap in taps if tap.tensor in reference.observable)):
        names = [tap.tensor for tap in group]
        before, after = reference.tensors(names, feeds), reference.tensors(names, changed)
        found.update((name, difference(after[name], before[name]).rms / CHANGE) for name in before)
    for tap in taps:
        if tap.tensor in found:
            found[tap.tensor] = max(found[name] for name in (tap.tensor, *tap.sources) if name in found)
    return found


def _changed(array: Array, seed: int) -> Array:
    """`array` with noise of `CHANGE` of its deviation; what is not floating point stays."""
    if array.dtype.kind != "f":
        return array
    noise = np.random.RandomState(seed).standard_normal(array.shape)
    return (array + noise * (CHANGE * max(float(array.std()), 1e-30))).astype(array.dtype)
