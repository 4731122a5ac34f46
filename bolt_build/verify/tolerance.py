"""How far an engine's outputs may be from the reference: one row an element type, chosen with reasons; and what the
recipe says in place of that.

An element's error is |engine - reference| / (|reference| + s), s the standard deviation of the whole tensor: relative
where a number is large, and measured by what the tensor usually holds where it is near zero. A single number has no
deviation: its size stands for it. Layers are judged
otherwise, by what rounding of their own inputs can do (`verify.judgement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import sqrt

from bolt_build.dtypes import DType


@dataclass(frozen=True)
class Tolerance:
    """Limits for outputs behind tensors that were stored, at their coarsest, in one element type.

    `element` bounds the largest error of an element after one layer and `rms` the root mean square of the difference
    over s. Roundings of successive layers are independent, so both grow with the square root of the depth; and with
    the amplification that the network itself has, for it enlarges every rounding at most as much as one of the input
    (`verify.sensitivity` measures that in the reference). `cosine` is the least that outputs may have where the
    network amplifies little (see `cosine_at`), `centred` the least once the reference's mean over the batch is removed.
    """

    element: float
    rms: float
    cosine: float
    centred: float

    def at(self, depth: int, amplification: float, of_elements: float = 0.0) -> tuple[float, float]:
        """Limits of the element and of the rms error behind `depth` layers. `of_elements` is the amplification of the
        element that is amplified most: where errors are normal, that is no more than `element` is above `rms`."""
        deep = sqrt(max(depth, 1))
        growth = deep * max(amplification, 1.0)
        element = max(self.element * growth, self.rms * deep * of_elements)
        return min(element, MOST_ELEMENT), min(self.rms * growth, MOST_RMS)

    def cosine_at(self, rms: float) -> float:
        """The least cosine of outputs whose rms error may be `rms`: an error of that size turns them by as much."""
        return min(self.cosine, 1.0 - rms * rms / 2.0)

    def centred_at(self, error: float, deviation: float) -> float:
        """The least cosine without the mean, where outputs may be off by `error` and deviate from it by `deviation`."""
        part = error / deviation if deviation else 1.0
        return min(self.centred, 1.0 - part * part / 2.0)


MOST_ELEMENT = 1.0
MOST_RMS = 0.3
"""A network that amplifies roundings to this says nothing by its outputs: then its layers alone are judged. An element
that rounding moves as much says nothing by itself, as that of a mask whose logit is near the threshold."""


TOLERANCES = {
    # Two right orders of summing differ by some 4e-7 of s in a layer, and by 3e-6 in the worst of 10^7 elements.
    # The mildest faults sought are far above: BatchNorm folded with another epsilon 5e-4, a swapped residual 1.
    DType.F32: Tolerance(element=2e-5, rms=3e-6, cosine=0.99999, centred=0.9999),
    DType.F64: Tolerance(element=2e-5, rms=3e-6, cosine=0.99999, centred=0.9999),
    # Half a unit in the last place is 2^-12 of a number; the worst of many elements is some five times the usual.
    DType.F16: Tolerance(element=1e-2, rms=2e-3, cosine=0.999, centred=0.995),
    # 2^-9 a rounding, of the input, the weights and the result each: some 0.4% a layer.
    DType.BF16: Tolerance(element=6e-2, rms=1e-2, cosine=0.99, centred=0.96),
}

DEPENDENCE = 0.99
"""Outputs of different inputs whose cosine exceeds this hardly depend on the input: the check says little."""

COARSENESS = (DType.F64, DType.F32, DType.F16, DType.BF16)
"""Element types from fine to coarse."""


@dataclass(frozen=True)
class Tolerances:
    """What the recipe allows: the largest difference of a tensor as a part of the reference's root mean square, None
    where roundings are to judge. `layers` are pairs of a glob of ONNX node names and what holds there, in the recipe's
    order: the last that matches counts."""

    overall: float | None = None
    layers: tuple[tuple[str, float], ...] = ()

    def of(self, names: Sequence[str]) -> float | None:
        """What holds for a step that stands for the ONNX nodes `names`."""
        found = [value for match, value in self.layers if any(fnmatchcase(name, match) for name in names)]
        return found[-1] if found else self.overall


BY_ROUNDING = Tolerances()
"""The recipe says nothing."""


def coarser(a: DType, b: DType) -> DType:
    """The coarser of two element types; integers and booleans, which lose nothing, count as fine."""
    rank = {dtype: index for index, dtype in enumerate(COARSENESS)}
    return a if rank.get(a, -1) >= rank.get(b, -1) else b
