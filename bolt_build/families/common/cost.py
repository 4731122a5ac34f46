"""Predicted times: a roofline over a target's bandwidth and arithmetic rate."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, rate
from bolt_build.targets import Target


def roofline(problem: KernelProblem, target: Target, efficiency: float, reached: float = 1.0) -> float:
    """Seconds for `problem` where arithmetic runs at `efficiency` times the target's peak for its storage type, and
    memory at `reached` times its bandwidth."""
    arithmetic = problem.flops / (rate(problem, target) * efficiency)
    return max(problem.nbytes / (target.bandwidth * reached), arithmetic) + target.launch_seconds
