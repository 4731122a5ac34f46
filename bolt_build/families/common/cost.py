"""Predicted times: a roofline over a target's bandwidth and arithmetic rate."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, rate
from bolt_build.targets import Target


def roofline(problem: KernelProblem, target: Target, efficiency: float, reached: float = 1.0) -> float:
    """Seconds for `problem` where arithmetic runs at `efficiency` times the target's peak for its storage type, and
    memory at `reached` times its bandwidth."""
    arithmetic = problem.flops / (rate(problem, target) * efficiency)
    return max(problem.nbytes / (target.bandwidth * reached), arithmetic) + target.launch_seconds


OVERLAPPED = 0.725
"""The part of a launch that a small kernel takes whose blocks wait for nothing but their elements, as measured on an
H200."""
_CACHED, _SPILLS = 1.5, 3.0
"""How many times as fast as memory a GPU's kernel moves what L2 has room for, of which the kernel in front has left a
part there; and that of twice the size of L2 nothing is left from half as much on: a part that falls evenly between."""


def moved(nbytes: float, target: Target) -> float:
    """Seconds in which a GPU's kernels move so many bytes, of which L2 keeps some between them. Fitted to 500 times of
    an H200, of up to 103 MB."""
    assert target.gpu is not None, "hosts have no L2 between kernels"
    kept = min(max(_SPILLS - 2 * nbytes / target.gpu.l2, 0.0), 1.0)
    return nbytes * (kept / _CACHED + 1.0 - kept) / target.bandwidth
