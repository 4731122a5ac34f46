"""Layer by layer: every observable tensor of an engine's run, beside what the model makes of the engine's own inputs of
that layer."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.runtime.loader import StepInfo
from bolt_build.verify.judgement import MASK, Judgement, judge, judge_exactly
from bolt_build.verify.models.piece import Care
from bolt_build.verify.reference import Expected, Reference, widened
from bolt_build.verify.report import LayerReport
from bolt_build.verify.taps import GROUP_BYTES, Tap, groups, taps_of
from bolt_build.verify.tolerance import BY_ROUNDING, Tolerances


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
    """`layers` that the engine showed, in execution order, and the `outputs` of that run."""

    layers: tuple[LayerReport, ...]
    outputs: dict[str, Array]


def compare_layers(
    context: Runnable,
    reference: Reference,
    plan: BatchPlan,
    inputs: Mapping[str, Array],
    tolerances: Tolerances = BY_ROUNDING,
    largest: int = 1,
) -> Observation:
    """Run the engine once on `inputs`, and judge every tensor that it shows.

    Tensors are kept for as long as a layer that reads them was not judged; a group of layers is judged once the engine
    has come to its end. A group is as many tensors as memory holds of a batch of `largest`, the engine's largest, so
    that all batches have the same groups, and share what the reference has made ready for them.
    """
    taps = tuple(tap for tap in taps_of(plan) if tap.tensor in reference.observable)
    together = tuple(groups(taps, GROUP_BYTES * plan.batch // max(largest, plan.batch)))
    judging = _Judging(reference, together, tolerances, {port.name: inputs[port.name] for port in plan.inputs})
    known = {(tap.step, tap.tensor): tap for tap in taps}

    def observe(step: StepInfo, tensor: str, array: Array) -> None:
        tap = known.get((step.index, tensor))
        if tap is not None:
            judging.see(tap, array)

    outputs = context.run_observed(inputs, observe, only={tap.tensor for tap in taps})
    return Observation(judging.finish(), outputs)


class _Judging:
    """What the engine has shown, the layers that wait to be judged, and what was found."""

    def __init__(
        self,
        reference: Reference,
        together: tuple[tuple[Tap, ...], ...],
        tolerances: Tolerances,
        inputs: Mapping[str, Array],
    ) -> None:
        self._reference, self._tolerances = reference, tolerances
        self._ports = {name: name for name in inputs}
        self._held = dict(inputs)
        self._groups = together
        members = ((number, tap) for number, group in enumerate(self._groups) for tap in group)
        self._last = {source.value: number for number, tap in members for source in tap.sources}
        self._done = 0
        self._beyond: dict[str, Array] = {}
        self._endless: set[str] = set()
        self._reports: list[LayerReport] = []

    def see(self, tap: Tap, array: Array) -> None:
        while tap.step > self._groups[self._done][-1].step:
            self._judge()
        self._held[tap.value] = array

    def finish(self) -> tuple[LayerReport, ...]:
        while self._done < len(self._groups):
            self._judge()
        return tuple(self._reports)

    def _judge(self) -> None:
        group, self._done = self._groups[self._done], self._done + 1
        shown = tuple(
            tap for tap in group
            if tap.value in self._held and all(source.value in self._held for source in tap.sources)
        )  # fmt: skip
        for tap in shown:
            self._keep_beyond(tap)
        if shown:
            expected = self._reference.expected(shown, self._read(), self._ports)
            pairs = zip(shown, expected, strict=True)
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                judged = threads.map(lambda pair: self._judged(*pair), pairs)
                for tap, report in zip(shown, judged, strict=True):
                    self._add(tap, report)
        for value in [v for v in self._held if self._last.get(v, -1) < self._done and v not in self._ports]:
            del self._held[value]
            self._beyond.pop(value, None)

    def _read(self) -> Mapping[str, Array]:
        """What later layers are computed from."""
        return {**self._held, **self._beyond}

    def _keep_beyond(self, tap: Tap) -> None:
        """Where half precision has infinity for a finite number of a mask, the model goes on with its number: a row
        that is hidden as a whole has one score for all keys in the model, and NaN by infinities."""
        array = self._held[tap.value]
        if tap.stored not in (DType.F16, DType.BF16) or not bool(np.isinf(array).any()):
            return
        (found,) = self._reference.expected((tap,), self._read(), self._ports)
        if found.tensor.shape == array.shape:
            held = widened(array)
            beyond = np.isinf(held) & np.isfinite(found.tensor) & (np.abs(found.tensor) >= MASK)
            self._beyond[tap.value] = np.where(beyond, found.tensor, held)

    def _judged(self, tap: Tap, found: Expected) -> LayerReport:
        """Where the variances of the first rows say that it departs, those of all rows decide; and where a bound is too
        wide to tell anything, what trying shows."""
        report = self._report(tap, found)
        for care, wanted in ((Care.EVERY_ROW, not report.ok), (Care.TRIED, not report.tells)):
            if wanted and report.tolerance is None and found.variance is not None:
                return self._report(tap, *self._reference.expected((tap,), self._read(), self._ports, care))
        return report

    def _report(self, tap: Tap, found: Expected) -> LayerReport:
        return layer_report(tap, self._held[tap.value], found, self._tolerances.of((tap.name, *tap.covers)))

    def _add(self, tap: Tap, report: LayerReport) -> None:
        if report.not_finite or report.reference_not_finite:
            self._endless.add(tap.value)
        if report.reference_not_finite and any(source.value in self._endless for source in tap.sources):
            # What is made of NaN is NaN: that is said of the first such layer, and is no fault of this one.
            report = replace(report, reference_not_finite=0, ok=report.not_finite == 0)
        self._reports.append(report)


def unseen(taps: tuple[Tap, ...], reports: tuple[LayerReport, ...]) -> tuple[Tap, ...]:
    """Taps of computing steps that the engine never showed or the model does not have."""
    shown = {(report.step, report.tensor) for report in reports}
    return tuple(tap for tap in taps if not tap.view and (tap.step, tap.tensor) not in shown)


def layer_report(tap: Tap, array: Array, expected: Expected, tolerance: float | None = None) -> LayerReport:
    """The engine's `array` beside what the model makes of its inputs: judged by rounding, or by the recipe's
    `tolerance`."""
    same = array.shape == expected.tensor.shape
    if same and expected.tensor.dtype.kind in "iub" and expected.variance is None:
        found = judge_exactly(array, expected.tensor)
    elif same:
        found = judge(array, expected.tensor, expected.variance, tap.stored, expected.relative)
    else:
        found = Judgement(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0, 0)
    finite = found.not_finite == 0 and found.reference_not_finite == 0
    error = found.max_abs / max(found.signal, float(np.finfo(np.float32).tiny))
    within = found.used <= 1.0 if tolerance is None else error <= tolerance
    return LayerReport(
        step=tap.step,
        name=tap.name,
        tensor=tap.tensor,
        kernel=tap.kernel,
        shape=array.shape,
        reference_shape=expected.tensor.shape,
        precision=tap.computed.value,
        max_abs=found.max_abs,
        signal=found.signal,
        noise=found.noise,
        largest=found.largest,
        limit=found.limit,
        spread=found.spread,
        error=error,
        tolerance=tolerance,
        not_finite=found.not_finite,
        reference_not_finite=found.reference_not_finite,
        tells=found.tells,
        ok=same and finite and within,
    )
