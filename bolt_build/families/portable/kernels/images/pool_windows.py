"""The windows of a pooling, and how its kernels are called."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import three
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces


def spatial(values: tuple[int, ...], fill: int) -> str:
    """Values along depth, height and width."""
    return braces(three(values, fill))


def channels_last(problem: KernelProblem) -> bool:
    """True where a row of the output is the channels of a cell."""
    return problem.outputs[0].format.layout is Layout.CHANNELS_LAST


def pool_types(problem: KernelProblem) -> str:
    """Template arguments: the mode, and the element types of what is read and stored."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    if isinstance(op, LpPool):
        mode = f"PoolNorm<{op.p}>"
    else:
        average = "PoolAveragePadded" if op.count_include_pad else "PoolAverage"
        mode = "PoolMax" if op.mode == "max" else average
    return f"bolt::portable::{mode}, {COMPUTED[source.format.dtype]}, {COMPUTED[output.format.dtype]}"


def pool_header(problem: KernelProblem) -> str:
    return "bolt_portable/pool_norm.h" if isinstance(problem.op, LpPool) else "bolt_portable/pool.h"


def pool_parameters(
    problem: KernelProblem, op: Pool | LpPool | PoolPlaces, pitch: int = 0, given: int = 0, rows: int = 0
) -> str:
    """The windows of a pooling; cells of the output begin `pitch` elements apart, those of the input `given`, or as
    many as they have channels. All `rows` of an axis that windows go along alone are below each other, 0 where each is
    an image."""
    source, output = problem.inputs[0], problem.outputs[0]
    batch, channels, *_ = source.shape
    reads, makes = source.shape[2:], output.shape[2:]
    if rows:
        batch, channels, reads, makes, pitch = 1, 1, (rows, reads[-1]), (rows, makes[-1]), 1
    apart = {"in_cell": given} if given else {}
    return struct(
        "bolt::portable::Pool",
        batch=batch,
        channels=channels,
        **{"in": spatial(reads, 1)},
        out=spatial(makes, 1),
        kernel=spatial(op.kernel, 1),
        stride=spatial(op.strides, 1),
        dilation=spatial(op.dilations, 1),
        pad_begin=spatial(op.pads_begin, 0),
        pad_end=spatial(op.pads_end, 0),
        channels_last=boolean(source.format.layout is Layout.CHANNELS_LAST),
        out_cell=pitch or output.shape[1],
        **apart,
    )
