"""Predicted times: a roofline over a target's bandwidth and arithmetic rate."""

from __future__ import annotations

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.families.base import KernelProblem
from bolt_build.targets import Target

_NAMES = {dtype: name for name, dtype in PRECISIONS.items()}


def roofline(problem: KernelProblem, target: Target, efficiency: float) -> float:
    """Seconds for `problem` where arithmetic runs at `efficiency` times the target's peak for its storage type.

    Types that the target states no rate for count as fp32.
    """
    rates = dict(target.flops)
    rate = rates.get(_NAMES.get(problem.outputs[0].format.dtype, ""), rates[_NAMES[DType.F32]])
    return max(problem.nbytes / target.bandwidth, problem.flops / (rate * efficiency)) + target.launch_seconds
