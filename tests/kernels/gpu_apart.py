"""Kernels whose inputs are slices of wider tensors: one of each way in which kernels read."""

from __future__ import annotations

from dataclasses import replace

from gpu_harness import Trial

_READ_APART = (
    "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-", "form-3x3s2-residual-cutlass-128x64x64xcooperativex2x1-",
    "form-1x1-residual-cutlass-256x32x64xcooperativex1x2-", "slices-1x1-", "1x1-cutlass-",
    "narrow-1x1-residual-cutlass-", "narrow-3x3-cutlass-", "resident-copied-cutlass-4x2xturns-", "thin-folded-3-",
    "resident-residual-cutlass-8x4xturns-",
    "band-3x3s2-cutlass-64x64x64xpingpongx2-", "bands-16-cutlass-256x64x64xcooperativex2xof16-",
    "rolling-8-cutlass-16x64x2x6-", "pair-resident-odd+72-cutlass-14x128x3xturns-",
    "pool-3x3+max3-cutlass-", "pair-form-3x3s2+72-cutlass-128x96x80x64xcooperative-", "rows-pair+56-cutlass-",
    "dw-form-grouped-depthwisex4x8x8x16x4xregistersx2-", "dw-form-grouped-rowsx", "dw-form-7x7-grouped-diagonalx",
    "dw-form-grouped-slidingx", "dw-7x7-form-grouped-bandedx",
    "gr-form-4-grouped-tensor_corex4x7x14x2x1x4x1xsharedx2-", "deep-64s2-grouped-deepx",
    "chain-3x3s2+24-grouped-chainx", "inverted-3x3s2+24-grouped-invertedx",
    "expanded-3x3s2+dw+mean-grouped-expandedx", "mean-3x3-grouped-rowsx",
    "normed-7x7-grouped-normedx2x1x32x", "rows-pool-3-24-portable-", "rows-pool-5-7-portable-", "norm-",
    "f16-rearrange-pixels-portable-", "f16-transpose-blocks-portable-",
    "f16-heads-rms-turned-portable-", "half-placed-rows-portable-",
    "f16-gate-of-rows-portable-", "f16-gate-first-portable-",
)  # fmt: skip
"""The first trial of each is tried with inputs whose rows lie apart too: one of each way in which kernels read."""


def apart(found: list[Trial]) -> list[Trial]:
    """Those trials, as slices of wider tensors."""
    able = [t for t in found if t.shared is None and not t.between and t.step.reads_apart]
    first = (next((t for t in able if t.label.startswith(name)), None) for name in _READ_APART)
    return [replace(trial, between=24) for trial in first if trial is not None]
