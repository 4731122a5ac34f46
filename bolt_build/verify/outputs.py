"""An engine's outputs, over all samples, against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.compare import dependence, difference, least_cosine
from bolt_build.verify.report import OutputReport
from bolt_build.verify.tolerance import DEPENDENCE, TOLERANCES


@dataclass(frozen=True)
class OutputLimits:
    """What an output is judged by: see `Tap`."""

    depth: int
    amplification: float
    coarsest: DType


def compare_output(
    name: str, batch: int, limits: OutputLimits, results: Sequence[Array], expected: Sequence[Array]
) -> tuple[OutputReport, tuple[str, ...]]:
    """Output `name`, one array a sample from the engine and from the reference; and the reasons why it is wrong."""
    tolerance = TOLERANCES[limits.coarsest]
    element, rms = tolerance.at(limits.depth, limits.amplification)
    for result, reference in zip(results, expected, strict=True):
        if result.shape != reference.shape:
            reason = f"its shape is {list(result.shape)}, the model's {list(reference.shape)}"
            return OutputReport(name, 0, 0, element, 0, rms, 0, None, None, 0, 0, ok=False), (reason,)
    found = [difference(a, b) for a, b in zip(results, expected, strict=True)]
    rows, references = _rows(results, batch), _rows(expected, batch)
    raw = least_cosine(rows, references)
    alike = dependence(references)
    centred = None
    if alike is not None:
        mean = references.mean(axis=0, dtype=np.float64)
        centred = least_cosine(rows - mean, references - mean)
    report = OutputReport(
        name=name,
        max_abs=max(d.max_abs for d in found),
        error=max(d.element for d in found),
        tolerance=element,
        rms=max(d.rms for d in found),
        rms_tolerance=rms,
        cosine=raw,
        cosine_centred=centred,
        dependence=alike,
        not_finite=sum(d.not_finite for d in found),
        reference_not_finite=sum(d.reference_not_finite for d in found),
        ok=True,
    )
    reasons = _reasons(report, tolerance.cosine_at(rms), tolerance.centred)
    return (OutputReport(**{**vars(report), "ok": not reasons}), reasons)


def _reasons(report: OutputReport, cosine: float, centred: float) -> tuple[str, ...]:
    if report.reference_not_finite:
        return (f"the model itself answers NaN or infinity ({report.reference_not_finite} elements)",)
    if report.not_finite:
        return (f"{report.not_finite} elements are NaN or infinite",)
    reasons = []
    if report.error > report.tolerance:
        reasons.append(f"the largest error {report.error:.2g} exceeds {report.tolerance:.2g}")
    if report.rms > report.rms_tolerance:
        reasons.append(f"the rms error {report.rms:.2g} exceeds {report.rms_tolerance:.2g}")
    if report.cosine < cosine:
        reasons.append(f"cosine {report.cosine:.6f} is under {cosine:.6g}")
    # Where outputs hardly differ, what is left behind their mean is rounding, and says nothing.
    meaningful = report.dependence is not None and report.dependence <= DEPENDENCE
    if meaningful and report.cosine_centred is not None and report.cosine_centred < centred:
        reasons.append(f"cosine without the mean {report.cosine_centred:.6f} is under {centred}")
    return tuple(reasons)


def _rows(arrays: Sequence[Array], batch: int) -> Array:
    """One row an image over all samples; a sample is one row where the output has no batch axis."""
    if all(array.ndim > 0 and array.shape[0] == batch for array in arrays):
        return np.concatenate([array.reshape(batch, -1) for array in arrays]).astype(np.float64)
    return np.stack([array.reshape(-1) for array in arrays]).astype(np.float64)
