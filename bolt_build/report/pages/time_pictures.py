"""Pictures of a batch, as numbers for a page: its steps one behind the other by time, and each in the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.report.explained.explanation import Batch, Layer
from bolt_build.report.pages.chart import VIEW

STRIP_WIDTH = 1000.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 82.0, 985.0, 14.0, 290.0
_LEAST_RADIUS, _RADIUS = 3.0, 13.0
_LABEL = 16.0
"""Width of a bar from which its step's number is written on it."""


@dataclass(frozen=True)
class Strip:
    """A bar of the strip of steps."""

    x: float
    width: float
    color: str
    title: str
    text: str


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Roof:
    """A line from (x1, y1) to (x2, y2), and what it is: a bandwidth where it rises, a rate where it is level."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str

    @property
    def level(self) -> bool:
        return self.y1 == self.y2


@dataclass(frozen=True)
class Point:
    """A step: the larger the circle, the more of the time it takes."""

    x: float
    y: float
    radius: float
    color: str
    title: str


@dataclass(frozen=True)
class RooflinePicture:
    """Operations a byte to the right, operations a second upwards, both by powers of ten. `without`: so many steps
    compute nothing that counts, and have no place in it."""

    across: tuple[Tick, ...]
    upward: tuple[Tick, ...]
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...]
    without: int


def strip(batch: Batch, colors: Mapping[str, str]) -> tuple[Strip, ...]:
    """A bar a step, as wide as its part of the batch's time."""
    found, x = [], 0.0
    for layer in batch.layers:
        if layer.kernel == VIEW or not batch.totals.time:
            continue
        width = STRIP_WIDTH * layer.time / batch.totals.time
        text = str(layer.step) if width >= _LABEL else ""
        found.append(Strip(round(x, 2), round(width, 2), colors[layer.kernel], step_title(layer, batch), text))
        x += width
    return tuple(found)


def step_title(layer: Layer, batch: Batch) -> str:
    """One line on a step, for who points at it."""
    how = "measured" if layer.measured is not None else "predicted"
    share = layer.time / batch.totals.time if batch.totals.time else 0.0
    return f"step {layer.step}: {layer.name}: {layer.time:.2f} us {how}, {share:.1%} of the time: {layer.kernel}"


def roofline_picture(batch: Batch, colors: Mapping[str, str]) -> RooflinePicture | None:
    """None where no step computes anything that counts."""
    timed = [layer for layer in batch.layers if layer.roofline is not None and layer.time]
    shown = [layer for layer in timed if layer.roofline and layer.roofline.flops and layer.roofline.nbytes]
    if not shown:
        return None
    intensity, reached = [_intensity(each) for each in shown], [_reached(each) for each in shown]
    roofs = sorted({(each.roofline.bandwidth, each.roofline.rate) for each in shown if each.roofline}, reverse=True)
    # Rates that share a bandwidth share its slope, which ends at the highest.
    steepest = {bandwidth: max(rate for other, rate in roofs if other == bandwidth) for bandwidth, _ in roofs}
    ridges = [rate / bandwidth for bandwidth, rate in roofs]
    across = _Axis.over([*intensity, *ridges], _LEFT, _RIGHT)
    upward = _Axis.over([*reached, *(rate for _, rate in roofs)], _BOTTOM, _TOP)
    points = [
        Point(
            across.at(_intensity(each)), upward.at(_reached(each)), _radius(each, batch), colors[each.kernel],
            _point_title(each, batch),
        )
        for each in sorted(shown, key=lambda each: -each.time)
    ]  # fmt: skip
    return RooflinePicture(
        across.ticks(""), upward.ticks("FLOP/s"),
        (*(_slope(bandwidth, rate, across, upward) for bandwidth, rate in steepest.items()),
         *(_level(bandwidth, rate, across, upward) for bandwidth, rate in roofs)),
        tuple(points), len(timed) - len(shown),
    )  # fmt: skip


def _slope(bandwidth: float, rate: float, across: _Axis, upward: _Axis) -> Roof:
    """Up to the ridge, where bytes bound."""
    first = max(across.least, upward.least / bandwidth)
    begin, end = (across.at(first), upward.at(first * bandwidth)), (across.at(rate / bandwidth), upward.at(rate))
    return Roof(*begin, *end, f"{_scaled(bandwidth)}B/s")


def _level(bandwidth: float, rate: float, across: _Axis, upward: _Axis) -> Roof:
    """From the ridge on, where operations bound."""
    return Roof(across.at(rate / bandwidth), upward.at(rate), _RIGHT, upward.at(rate), f"{_scaled(rate)}FLOP/s")


@dataclass(frozen=True)
class _Axis:
    """Whole powers of ten between two places of the picture."""

    least: float
    most: float
    begin: float
    end: float

    @staticmethod
    def over(values: Sequence[float], begin: float, end: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return _Axis(10.0**low, 10.0 ** max(high, low + 1), begin, end)

    def at(self, value: float) -> float:
        part = math.log10(value / self.least) / math.log10(self.most / self.least)
        return round(self.begin + part * (self.end - self.begin), 2)

    def ticks(self, unit: str) -> tuple[Tick, ...]:
        low, high = round(math.log10(self.least)), round(math.log10(self.most))
        return tuple(Tick(self.at(10.0**power), _power(power, unit)) for power in range(low, high + 1))


def _power(power: int, unit: str) -> str:
    if not unit:
        return f"{10.0**power:g}"
    step = min(max(power // 3, 0), 5)
    return f"{10.0 ** (power - 3 * step):g} {('', 'k', 'M', 'G', 'T', 'P')[step]}{unit}"


def _scaled(value: float) -> str:
    """Three digits and the letter of the power of a thousand."""
    step = min(max(int(math.log10(value) // 3), 0), 5)
    return f"{value / 1000.0**step:.3g} {('', 'k', 'M', 'G', 'T', 'P')[step]}"


def _intensity(layer: Layer) -> float:
    """Operations a byte that the problem itself moves."""
    assert layer.roofline is not None
    return layer.roofline.flops / layer.roofline.nbytes


def _reached(layer: Layer) -> float:
    """Operations a second."""
    assert layer.roofline is not None
    return layer.roofline.flops / (layer.time * 1e-6)


def _radius(layer: Layer, batch: Batch) -> float:
    return round(max(_LEAST_RADIUS, _RADIUS * math.sqrt(layer.time / max(each.time for each in batch.layers))), 2)


def _point_title(layer: Layer, batch: Batch) -> str:
    assert layer.roofline is not None
    reached = f"{_scaled(_reached(layer))}FLOP/s at {_intensity(layer):.1f} FLOP/byte"
    return f"{step_title(layer, batch)}; {reached}, {layer.roofline.share:.1%} of what {layer.roofline.by} allows"
