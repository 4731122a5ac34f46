"""Predicted times: a roofline over a target's bandwidth and arithmetic rate."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, rate
from bolt_build.targets import Target


def roofline(problem: KernelProblem, target: Target, efficiency: float) -> float:
    """Seconds for `problem` where arithmetic runs at `efficiency` times the target's peak for its storage type."""
    arithmetic = problem.flops / (rate(problem, target) * efficiency)
    return max(problem.nbytes / target.bandwidth, arithmetic) + target.launch_seconds
