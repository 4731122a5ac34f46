"""Means over whole images behind an operator whose kernel leaves them: squeeze and excitation, and the end of most
networks of convolutions."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.chain import Averaged

LAST = "last"
"""How a candidate says that whoever comes last to an image adds up what was left of it."""
ROUND = 0.9e-6
"""Seconds in which a block sees in L2 what another one wrote, or counted."""
L2_RATE = 2.0
"""Bandwidth of the L2 cache, in that of the memory."""


def averages(problem: KernelProblem) -> bool:
    """True for problems of an operator and the means of what it leaves, which is stored as well."""
    return isinstance(problem.op, Averaged)


def refuse_format(problem: KernelProblem) -> str | None:
    """Why no kernel leaves the means that are a problem's last output in the format that it has; None where one may."""
    dtype, mean = problem.inputs[0].format.dtype, problem.outputs[-1]
    if averages(problem):
        dtype = problem.outputs[0].format.dtype
    layout = Layout.CHANNELS_LAST if len(mean.shape) > 2 else Layout.ROW
    if mean.format.dtype is not dtype or mean.format.layout is not layout:
        return f"leaves means in {dtype.value}/{layout.value}, not in {mean.format}"
    return None
