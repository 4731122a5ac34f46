"""Layer by layer: every observable tensor of an engine's run against the reference."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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


def compare_layers(
    context: Runnable,
    reference: Reference,
    taps: tuple[Tap, ...],
    inputs: Mapping[str, Array],
    feeds: Mapping[str, Array],
    amplification: Mapping[str, float],
) -> tuple[tuple[LayerReport, ...], dict[str, Array]]:
    """The layers that the engine showed, in execution order, and the outputs of its observed run.

    The engine's tensors are compared as they come and not kept; the reference's are held one group at a time.
    """
    observable = reference.observable([tap.tensor for tap in taps])
    waiting = tuple(tap for tap in taps if tap.tensor in observable)
    used: dict[str, float] = {}
    reports: list[LayerReport] = []
    outputs: dict[str, Array] | None = None
    for group in groups(waiting):
        wanted = {(tap.step, tap.tensor): tap for tap in group}
        expected = reference.tensors([tap.tensor for tap in group], feeds)

        def observe(
            step: StepInfo,
            tensor: str,
            array: Array,
            wanted: Mapping[tuple[int, str], Tap] = wanted,
            expected: Mapping[str, Array] = expected,
        ) -> None:
            tap = wanted.get((step.index, tensor))
            if tap is not None:
                report = _layer(tap, array, expected[tensor], used, amplification.get(tensor, 1.0))
                worst = report.used if report.ok else max(report.used, DEPARTED)
                used[tensor] = max(worst, used.get(tensor, 0.0))
                reports.append(report)

        outputs = context.run_observed(inputs, observe, only={tap.tensor for tap in group})
    if outputs is None:
        outputs = context.run_observed(inputs, lambda *_: None, only=())
    return tuple(reports), outputs


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
