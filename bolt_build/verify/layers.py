"""Layer by layer: every observable tensor of an engine's run against the reference."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Protocol

from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import StepInfo
from bolt_build.verify.compare import Difference, difference
from bolt_build.verify.reference import Reference
from bolt_build.verify.report import LayerReport
from bolt_build.verify.taps import Tap, groups
from bolt_build.verify.tolerance import TOLERANCES

DEPARTED = 2.0
"""What a departed layer counts for at least, as a part of its tolerance, whatever it departed by."""


class Runnable(Protocol):
    """What verification needs of a `runtime.loader.Context`."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...

    def run_observed(
        self,
        inputs: Mapping[str, Array],
        observer: Callable[[StepInfo, str, Array], None],
        only: Container[str] | None = None,
    ) -> dict[str, Array]: ...


@dataclass(frozen=True)
class Observation:
    """`layers` that the engine showed, in execution order; `outputs` of its observed run and, on the same inputs, of
    the reference's (`expected`)."""

    layers: tuple[LayerReport, ...]
    outputs: dict[str, Array]
    expected: dict[str, Array]


def compare_layers(
    context: Runnable,
    reference: Reference,
    taps: tuple[Tap, ...],
    inputs: Mapping[str, Array],
    feeds: Mapping[str, Array],
    amplification: Mapping[str, float],
) -> Observation:
    """Run the engine once on `inputs`, and compare every tensor that it shows with the reference's on `feeds`.

    The engine's tensors are compared as they come; the reference is asked for a group of tensors when the engine comes
    to the first of them, and they are let go with the next group.
    """
    expected = _Expected(reference, taps, feeds)
    waiting = {(tap.step, tap.tensor): tap for tap in taps if tap.tensor in reference.observable}
    used: dict[str, float] = {}
    reports: list[LayerReport] = []

    def observe(step: StepInfo, tensor: str, array: Array) -> None:
        tap = waiting.get((step.index, tensor))
        if tap is not None:
            report = _layer(tap, array, expected.of(tap), used, amplification.get(tensor, 1.0))
            worst = report.used if report.ok else max(report.used, DEPARTED)
            used[tensor] = max(worst, used.get(tensor, 0.0))
            reports.append(report)

    outputs = context.run_observed(inputs, observe, only={tap.tensor for tap in waiting.values()})
    return Observation(tuple(reports), outputs, expected.outputs())


class _Expected:
    """The reference's tensors, one group in memory at a time."""

    def __init__(self, reference: Reference, taps: tuple[Tap, ...], feeds: Mapping[str, Array]) -> None:
        self._reference, self._feeds = reference, feeds
        self._groups = tuple(groups(tuple(tap for tap in taps if tap.tensor in reference.observable)))
        self._held: dict[str, Array] = {}
        self._outputs: dict[str, Array] | None = None

    def of(self, tap: Tap) -> Array:
        """What the reference has where the engine has `tap`."""
        if tap.tensor not in self._held:
            group = next(group for group in self._groups if tap in group)
            self._held = {}
            names = self._reference.output_names
            self._held = self._reference.tensors([*names, *(tap.tensor for tap in group)], self._feeds)
            self._outputs = {name: self._held[name] for name in names}
        return self._held[tap.tensor]

    def outputs(self) -> dict[str, Array]:
        """The reference's outputs, which come along with any group."""
        return self._reference.outputs(self._feeds) if self._outputs is None else self._outputs


def unseen(taps: tuple[Tap, ...], reports: tuple[LayerReport, ...]) -> tuple[Tap, ...]:
    """Taps of computing steps that the engine never showed or the model does not have."""
    shown = {(report.step, report.tensor) for report in reports}
    return tuple(tap for tap in taps if not tap.view and (tap.step, tap.tensor) not in shown)


def _layer(tap: Tap, array: Array, expected: Array, used: Mapping[str, float], amplification: float) -> LayerReport:
    element, rms = TOLERANCES[tap.coarsest].at(tap.depth, amplification)
    if array.shape == expected.shape:
        found = difference(array, expected)
    else:
        found = Difference(0.0, 0.0, 0.0, 0, 0)
    sources = [used[name] for name in tap.sources if name in used]
    finite = found.not_finite == 0 and found.reference_not_finite == 0
    return LayerReport(
        step=tap.step,
        name=tap.name,
        tensor=tap.tensor,
        kernel=tap.kernel,
        shape=array.shape,
        reference_shape=expected.shape,
        precision=tap.coarsest.value,
        depth=tap.depth,
        amplification=amplification,
        max_abs=found.max_abs,
        error=found.element,
        tolerance=element,
        rms=found.rms,
        rms_tolerance=rms,
        not_finite=found.not_finite,
        reference_not_finite=found.reference_not_finite,
        inputs_error=max(sources, default=None if tap.sources else 0.0),
        ok=array.shape == expected.shape and finite and found.element <= element and found.rms <= rms,
    )
