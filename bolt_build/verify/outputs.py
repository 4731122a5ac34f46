"""An engine's outputs, over all samples, against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.errors import Diagnostic
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan, Port
from bolt_build.verify.compare import dependence, difference, least_cosine
from bolt_build.verify.judgement import chance
from bolt_build.verify.masked import without_masked
from bolt_build.verify.report import OutputReport
from bolt_build.verify.sensitivity import Growth
from bolt_build.verify.taps import Tap, taps_of
from bolt_build.verify.tolerance import DEPENDENCE, MOST_ELEMENT, MOST_RMS, TOLERANCES, Tolerances, coarser

_TRIED = 2.0
"""An engine may be off by as many times what one trial of its roundings shows (`sensitivity.tried`)."""
_OTHERS, _FEW = 4.0, 2
"""Of whole numbers that rounding decides, so many times as many as it changed may be others, and so many more."""

_ADDED_UP = (
    "where no layer departs, each is right by itself, and roundings add up: verify on real inputs ('verify.inputs'), "
    "compute more layers in fp32, or say what is right ('verify.tolerance')"
)
_UNFIT = (
    "inputs that are drawn at random may not fit it, as a size of 0: verify on real inputs ('verify.inputs'), or give "
    "those that say sizes a value ('model.fixed')"
)

Run = Mapping[str, Array]


@dataclass(frozen=True)
class OutputLimits:
    """What an output is judged by: see `Tap`; `allowed` is the recipe's tolerance."""

    depth: int
    growth: Growth
    coarsest: DType
    allowed: float | None = None


@dataclass(frozen=True)
class ComparedOutputs:
    """One report an output, the problems found, and for each sample whether any output went wrong in it."""

    outputs: tuple[OutputReport, ...]
    problems: tuple[Diagnostic, ...]
    wrong_samples: tuple[bool, ...]


def coarsest_of(plan: BatchPlan) -> DType:
    """The coarsest element type that anything of a plan is stored in, weights included."""
    found = DType.F32
    for tap in taps_of(plan):
        found = coarser(found, tap.coarsest)
    return found


def compare_outputs(
    plan: BatchPlan,
    tolerances: Tolerances,
    growth: Mapping[str, Growth],
    results: Sequence[Run],
    expected: Sequence[Run],
) -> ComparedOutputs:
    """Every output, one mapping a sample from the engine and from the reference; `growth` is how much the network
    amplifies a change of its inputs, by output."""
    taps = taps_of(plan)
    reports: list[OutputReport] = []
    problems: list[Diagnostic] = []
    wrong = [False] * len(results)
    for port in plan.outputs:
        name = port.name
        limits = _limits(port, taps, growth, tolerances)
        pairs = ([r[name] for r in results], [e[name] for e in expected])
        report, reasons = compare_output(name, plan.batch, limits, *pairs)
        reports.append(report)
        problems += _problems(f"{plan.sizes}, output '{name}'", report, reasons)
        if reasons:
            for number, (a, b) in enumerate(zip(*pairs, strict=True)):
                wrong[number] |= not compare_output(name, plan.batch, limits, [a], [b])[0].ok
    return ComparedOutputs(tuple(reports), tuple(problems), tuple(wrong))


def _problems(subject: str, report: OutputReport, reasons: tuple[str, ...]) -> list[Diagnostic]:
    if reasons:
        hint = _UNFIT if report.reference_not_finite else _ADDED_UP
        return [Diagnostic("output-departs", f"{subject}: {'; '.join(reasons)}", hint=hint)]
    if not report.tells:
        message = (
            f"{subject}: the network amplifies rounding {report.amplification:.2g} times, so that two right engines may"
            " differ by as much as the output itself; its layers were judged one by one"
        )
        hint = "verify on real inputs ('verify.inputs'), or give the model trained weights"
        return [Diagnostic("weak-check", message, hint=hint, severity="warning")]
    if report.dependence is not None and report.dependence > DEPENDENCE:
        message = (
            f"{subject}: outputs hardly depend on the input (cosine {report.dependence:.4f} between different"
            " inputs), so that they say little; the layers were compared one by one"
        )
        hint = "give the model trained or calibrated weights"
        return [Diagnostic("weak-check", message, hint=hint, severity="warning")]
    return []


def _limits(port: Port, taps: Sequence[Tap], growth: Mapping[str, Growth], tolerances: Tolerances) -> OutputLimits:
    """Those of the step that makes the output; of the deepest and coarsest step where no tensor has its name."""
    own = [tap for tap in taps if tap.tensor == port.name]
    found = own or list(taps)
    stored = port.operand.type.dtype
    coarsest = stored if stored.is_float else DType.F32
    for tap in found:
        coarsest = coarser(coarsest, tap.coarsest)
    allowed = tolerances.of([name for tap in own for name in (tap.name, *tap.covers)])
    return OutputLimits(
        max((tap.depth for tap in found), default=1), growth.get(port.name, Growth()), coarsest, allowed
    )


@np.errstate(invalid="ignore", over="ignore")
def compare_output(
    name: str, batch: int, limits: OutputLimits, results: Sequence[Array], expected: Sequence[Array]
) -> tuple[OutputReport, tuple[str, ...]]:
    """Output `name`, one array a sample from the engine and from the reference; and the reasons why it is wrong."""
    tolerance = TOLERANCES[limits.coarsest]
    # Few numbers may all be off by chance, and so may what a change of the input does to them.
    few = chance(expected[0].size) if expected else 1.0
    element, rms = tolerance.at(limits.depth, few * limits.growth.rms, few * limits.growth.element)
    element, rms = max(element, _TRIED * limits.growth.tried_element), max(rms, _TRIED * limits.growth.tried)
    report = OutputReport(
        name, 0, 0, element, 0, rms, 0, None, None, limits.growth.rms, limits.allowed, 0, 0, rms < MOST_RMS, ok=False,
        of_elements=limits.growth.element, changed=limits.growth.changed,
    )  # fmt: skip
    for result, reference in zip(results, expected, strict=True):
        if result.shape != reference.shape:
            return report, (f"its shape is {list(result.shape)}, the model's {list(reference.shape)}",)
    if expected and expected[0].dtype.kind in "iub":
        return _exact(report, results, expected, limits.growth.changed)
    pairs = [without_masked(a, b, limits.coarsest) for a, b in zip(results, expected, strict=True)]
    results, expected = [a for a, _ in pairs], [b for _, b in pairs]
    found = [difference(a, b) for a, b in pairs]
    rows, references = _rows(results, batch), _rows(expected, batch)
    alike = dependence(references)
    centred, least = None, tolerance.centred
    # What is decided changes wholly, and perhaps all of it in one row.
    of_row = rms * sqrt(len(rows)) if element >= MOST_ELEMENT else rms
    if alike is not None:
        mean = references.mean(axis=0, dtype=np.float64)
        centred = least_cosine(rows - mean, references - mean)
        least = tolerance.centred_at(of_row * _deviation(references), _deviation(references - mean))
    report = replace(
        report,
        max_abs=max(d.max_abs for d in found),
        error=max(d.element for d in found),
        rms=max(d.rms for d in found),
        cosine=least_cosine(rows, references),
        cosine_centred=centred,
        dependence=alike,
        not_finite=sum(d.not_finite for d in found),
        reference_not_finite=sum(d.reference_not_finite for d in found),
    )
    if limits.allowed is not None:
        signal = max(float(np.sqrt(np.mean(np.square(references)))), float(np.finfo(np.float32).tiny))
        report = replace(report, error=report.max_abs / signal, tolerance=limits.allowed, tells=True)
    cosine = min(tolerance.cosine_at(of_row), 1.0 - _TRIED**2 * limits.growth.turned)
    reasons = _reasons(report, cosine, least)
    return replace(report, ok=not reasons), reasons


def _exact(
    report: OutputReport, results: Sequence[Array], expected: Sequence[Array], changed: float
) -> tuple[OutputReport, tuple[str, ...]]:
    """Integers and booleans, which must be equal. Where a change as small as rounding's makes a part of them others,
    `changed`, as of places of scores that are nearly equal, so may an engine, and the layers decide."""
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(results, expected, strict=True)]
    wrong = sum(int(np.count_nonzero(a != b)) for a, b in zip(results, expected, strict=True))
    count = sum(array.size for array in expected)
    largest = max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    report = replace(report, max_abs=largest, cosine=1.0 if not wrong else 0.0, ok=not wrong, tells=True)
    if wrong and changed and wrong <= _OTHERS * changed * count + _FEW:
        return replace(report, ok=True, tells=False), ()
    return report, (f"{wrong} of {count} whole numbers or booleans are others",) if wrong else ()


def _reasons(report: OutputReport, cosine: float, centred: float) -> tuple[str, ...]:
    if report.reference_not_finite:
        return (f"the model itself answers NaN or infinity ({report.reference_not_finite} elements)",)
    if report.not_finite:
        return (f"{report.not_finite} elements are NaN or infinite",)
    reasons = []
    decided = report.allowed is None and report.tolerance >= MOST_ELEMENT
    if report.tells and not decided and report.error > report.tolerance:
        reasons.append(f"the largest error {report.error:.2g} exceeds {report.tolerance:.2g}")
    if not report.tells or report.allowed is not None:
        return tuple(reasons)
    if report.rms > report.rms_tolerance:
        reasons.append(f"the rms error {report.rms:.2g} exceeds {report.rms_tolerance:.2g}")
    if report.cosine < cosine:
        reasons.append(f"cosine {report.cosine:.6f} is under {cosine:.6g}")
    # Where outputs hardly differ, what is left behind their mean is rounding, and says nothing.
    meaningful = report.dependence is not None and report.dependence <= DEPENDENCE
    if meaningful and report.cosine_centred is not None and report.cosine_centred < centred:
        reasons.append(f"cosine without the mean {report.cosine_centred:.6f} is under {centred:.6g}")
    return tuple(reasons)


def _deviation(rows: Array) -> float:
    """What all rows together deviate by."""
    return float(np.std(rows[np.isfinite(rows)])) if np.isfinite(rows).any() else 0.0


def _rows(arrays: Sequence[Array], batch: int) -> Array:
    """One row an image over all samples; a sample is one row where the output has no batch axis."""
    if all(array.ndim > 0 and array.shape[0] == batch for array in arrays):
        return np.concatenate([array.reshape(batch, -1) for array in arrays]).astype(np.float64)
    return np.stack([array.reshape(-1) for array in arrays]).astype(np.float64)
