"""Kernels of half precision in bf16: trials in fp16, with the same tiles and settings, in the other type."""

from __future__ import annotations

from dataclasses import replace

from gpu_harness import Trial

from bolt_build.dtypes import DType
from bolt_build.families.base import Operand

COARSER = 3.0
"""bf16 keeps three bits less than fp16, and a product of products in fp16 uses up to a third of its tolerance."""


def in_bf16(trial: Trial) -> Trial:
    """The trial with bf16 in the place of every fp16; with another type it stays as it is."""
    problem = trial.step.problem
    inputs, outputs = (tuple(map(_operand, operands)) for operands in (problem.inputs, problem.outputs))
    if (inputs, outputs) == (problem.inputs, problem.outputs):
        return trial
    layer = replace(trial.layer, precision=DType.BF16, tolerance=COARSER * trial.layer.tolerance)
    return replace(
        trial, layer=layer, step=replace(trial.step, problem=replace(problem, inputs=inputs, outputs=outputs))
    )


def _operand(operand: Operand) -> Operand:
    if operand.format.dtype is not DType.F16:
        return operand
    return replace(operand, format=replace(operand.format, dtype=DType.BF16))
