"""Comparisons of rows with columns: every question, rows that begin within words, images, more threads than a row
takes, rows that take more than a block's threads, and numbers that fp32 does not hold."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ops.elementwise.logic import Compare

FAMILY = Portable()


def _crossed(label: str, question: str, *inputs: Input) -> Layer:
    return Layer(f"crossed-{label}", Compare(question), inputs, (), DType.F16, TOLERANCE)


def _numbers(*shape: int, most: float = 9, dtype: DType = DType.I64) -> Input:
    return Input(shape, low=-most, high=most, dtype=dtype)


LAYERS = (
    _crossed("ids", "equal", _numbers(3, 1, 37), _numbers(3, 37, 1)),
    _crossed("up-to", "less_equal", _numbers(2, 1, 77), _numbers(2, 130, 1)),
    _crossed("one-hot", "equal", _numbers(3, 70, 1), _numbers(40)),
    _crossed("planes", "equal", _numbers(3, 1, 45), _numbers(21, 1)),
    _crossed("in-words", "greater", _numbers(2, 1, 64), _numbers(2, 33, 1)),
    _crossed("below", "less", _numbers(40, 1, dtype=DType.I32), _numbers(1, 2061, dtype=DType.I32)),
    _crossed("from", "greater_equal", _numbers(2, 50, 1, dtype=DType.U8), _numbers(2, 1, 45, dtype=DType.U8)),
    _crossed("large", "greater_equal", _numbers(2, 1, 37, most=2e9), _numbers(2, 9, 1, most=2e9)),
    _crossed("halves", "less", Input((3, 1, 43)), Input((3, 31, 1))),
)


def crossed_trials() -> list[Trial]:
    """Of each layer the kernel that is predicted to be fastest, and one of rows that begin in three ways."""
    found = [trials_of(layer, "portable", 99, kind="algorithm") for layer in asked(LAYERS)]
    own = ([each for each in of if dict(each.candidate.parameters)["algorithm"] == "crossed"] for of in found)
    first = [of[0] for of in own]
    several = (("down", 8), ("kinds", 3))
    others = (replace(each, candidate=replace(each.candidate, settings=several)) for each in first)
    return first + [each for each in others if FAMILY.refuse(each.step.problem, each.candidate, TARGET) is None]
