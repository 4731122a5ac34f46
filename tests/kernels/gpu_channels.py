"""Convolutions behind which constants of channels are read, as they are tried on a GPU: PRelu with a slope a channel,
and scales and shifts behind an activation, by a kernel of each kind that says which channel it stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_harness import Trial, trials_of
from gpu_products import conv, matmul

from bolt_build.families.base import Candidate

PRELU, NORMALISED = ("prelu",), ("mul", "add")


def channels(
    label: str, x: tuple[int, ...], filters: int, kernel: tuple[int, ...], stride: int = 1, *,
    functions: tuple[str, ...] = PRELU, residual: bool = False, groups: int = 1, bias: bool = True,
) -> Layer:  # fmt: skip
    """A convolution whose stages each read a number of a channel, behind ReLU where they do not begin with PRelu, and
    then a residual where it is asked for."""
    plain = conv(label, x, filters, kernel, stride, groups=groups, epilogue=(stage("add", 3),), bias=bias)
    *own, like = plain.inputs
    constants = [Input((filters,) + (1,) * len(kernel), True, -0.5, 1.5) for _ in functions]
    stages = [RELU] * (functions[0] != "prelu")
    stages += [stage(function, len(own) + index) for index, function in enumerate(functions)]
    if residual:
        stages.append(stage("add", len(own) + len(constants)))
        constants.append(like)
    return replace(plain, inputs=(*own, *constants), epilogue=tuple(stages))


def columns(label: str, a: tuple[int, ...], n: int) -> Layer:
    """A product behind whose residual each column is scaled and shifted, as MobileBERT's are."""
    plain = matmul(label, a, n, False, ())
    out = (*a[:-1], n)
    numbers = Input((n,), True, -0.5, 1.5)
    stages = tuple(stage(function, len(plain.inputs) + at) for at, function in enumerate(("add", "mul", "add")))
    return replace(plain, inputs=(*plain.inputs, Input(out), numbers, numbers), epilogue=stages)


def _kinds(layer: Layer, *wanted: Callable[[Candidate], bool]) -> list[Trial]:
    """The layer's first candidate of each of these."""
    found = [trial for trial in trials_of(layer, "cutlass", 10_000) if trial.shared is None]
    return [next(trial for trial in found if is_one(trial.candidate)) for is_one in wanted]


def has(*words: str) -> Callable[[Candidate], bool]:
    """Candidates that state these, `m=128` or `partial`."""
    return lambda candidate: (
        set(words)
        <= {part for name, value in (*candidate.parameters, *candidate.settings) for part in (name, f"{name}={value}")}
    )


def channel_trials() -> list[Trial]:
    """In the order in which they run."""
    window = channels("channels-3x3", (2, 64, 13, 11), 64, (3, 3))
    pingpong = has("warpgroups=pingpong", "m=64", "n=96")
    found = _kinds(window, has("warp_m"), pingpong, has("warpgroups=single"), has("bands"), has("resident"))
    found += _kinds(channels("channels-deep", (1, 512, 7, 7), 64, (3, 3)), has("partial", "warpgroups"))
    found += _kinds(channels("channels-both", (2, 64, 13, 11), 72, (1, 1), functions=NORMALISED, residual=True),
                    has("warp_m"), pingpong)  # fmt: skip
    found += _kinds(columns("channels-columns", (2, 37, 64), 72), has("warp_m"), pingpong)
    found += _kinds(channels("channels-odd", (2, 24, 7, 5), 31, (3, 3), bias=False, residual=True), has("warp_m"))
    found += _kinds(channels("channels-beside", (2, 3, 20, 22), 24, (3, 3), functions=NORMALISED), has("warp_m"))
    found += _kinds(channels("channels-rolling", (2, 16, 20, 24), 16, (3, 3)), has("rolling"))
    found += _kinds(channels("channels-stem", (2, 3, 43, 51), 32, (3, 3), 2), has("stem"))
    found += _kinds(channels("channels-groups", (1, 64, 14, 13), 64, (3, 3), groups=8), has("filters"))
    found += trials_of(channels("channels-depthwise", (2, 40, 9, 9), 40, (3, 3), groups=40), "grouped")[:1]
    return found
