"""Pooling and direct convolution."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import bias, chain, refuse_stages
from bolt_build.families.common.geometry import three
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.kernels.images import placed_rows, pool_separated, pool_sliding, pool_staged, stencils
from bolt_build.families.portable.kernels.images.pool_windows import (
    channels_last,
    pool_header,
    pool_parameters,
    pool_types,
    spatial,
)
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.products import narrow_planes
from bolt_build.families.portable.kernels.products.products import single_efficiency
from bolt_build.families.portable.kernels.reductions import fold_slabs
from bolt_build.families.portable.rule import (
    Layouts,
    Rule,
    computed_only,
    in_single,
    no_epilogue,
    row_major,
    same_layouts,
)
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Target


def refuse_windows(problem: KernelProblem) -> str | None:
    rank = len(problem.outputs[0].shape)
    if rank > 5:
        return Reason("windows over {} spatial axes; at most 3 are supported", rank - 2)
    source, output = problem.inputs[op_operands(problem)[0]].format.layout, problem.outputs[0].format.layout
    if source is not output:
        return f"reads and writes in one layout, not {source.value} to {output.value}"
    return computed_only(problem) or refuse_stages(problem, axis=1)


def _emit_pool(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Pool | LpPool)
    parameters = pool_parameters(problem, op, at.pitch(0), at.input_pitch(0))
    call = (
        f"bolt::portable::pool<{pool_types(problem)}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]}, "
        f"{chain(problem, at)});"
    )
    return StepCode((pool_header(problem),), None, "", call)


_KNOWN_CELLS = 16
"""Cells of a window up to which a thread asks for all of them before it compares any."""


def _refuse_places(problem: KernelProblem) -> str | None:
    rank = len(problem.outputs[0].shape)
    return (
        Reason("windows over {} spatial axes; at most 3 are supported", rank - 2) if rank > 5 else no_epilogue(problem)
    )


def _emit_places(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, source = problem.op, problem.inputs[0]
    assert isinstance(op, PoolPlaces)
    arguments = f"{pool_parameters(problem, op)}, {len(op.kernel)}, {boolean(op.column_major)}"
    known = three(op.kernel, 1) if prod(op.kernel) <= _KNOWN_CELLS else (0, 0, 0)
    how = ", ".join((ctype(source.format.dtype), *map(str, known)))
    call = f"bolt::portable::pool_places<{how}>(r, {arguments}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/pool_places.h",), None, "", call)


def conv_parameters(problem: KernelProblem, op: Conv, source: int, weights: int) -> str:
    """C++ for a convolution of inputs `source` and `weights` of the problem."""
    x, w, output = problem.inputs[source], problem.inputs[weights], problem.outputs[0]
    return struct(
        "bolt::portable::Conv",
        batch=x.shape[0],
        channels=x.shape[1],
        out_channels=output.shape[1],
        groups=op.groups,
        **{"in": spatial(x.shape[2:], 1)},
        out=spatial(output.shape[2:], 1),
        kernel=spatial(w.shape[2:], 1),
        stride=spatial(op.strides, 1),
        dilation=spatial(op.dilations, 1),
        pad_begin=spatial(op.pads_begin, 0),
        channels_last=boolean(output.format.layout is Layout.CHANNELS_LAST),
    )


def _emit_conv(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Conv)
    own = op_operands(problem)
    source, weights = problem.inputs[own[0]], problem.inputs[own[1]]
    parameters = conv_parameters(problem, op, *own[:2])
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in (source, weights, output))
    before = tuple(bias(problem, at, index) for index in own[2:])
    call = (
        f"bolt::portable::conv<{types}>(r, {parameters}, {at.inputs[own[0]]}, {at.inputs[own[1]]}, "
        f"{at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/conv.h",), None, "", call)


def conv_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Weights are row-major also where they are no constants."""
    weights = node.inputs.index(node.op_inputs[1])
    return tuple(
        (tuple(Layout.ROW if index == weights else layout for index, layout in enumerate(layouts)), to)
        for layouts, to in same_layouts(node, inputs, output)
    )


_REACHED = 0.9
"""The part of a GPU's bandwidth at which poolings move bytes, where these are what takes longest."""
_RESULT, _CELL = 470, 33
"""Instructions of a thread for its results, and for 16 bytes of a cell, at the rate of multiply-adds. Fitted to an
H100's times of `pool_windows.py`."""
_THREADS = 2048
"""Threads of a multiprocessor, at most."""
_NEXT = 0.1e-6
"""Seconds in which a thread has one cell after the other, but for small windows, of which it asks for all at once."""


def _pool_seconds(problem: KernelProblem, target: Target) -> float:
    """Of the plain kernel: a thread has eight channels, or one element where these are not to be had."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Pool | LpPool)
    lanes = LANES if channels_last(problem) and output.shape[1] % LANES == 0 else 1
    cells = prod(op.kernel)
    instructions = _RESULT + _CELL * cells * max(1.0, lanes * source.format.dtype.nbytes / 16)
    issued = output.type.elements / lanes * instructions / (target.rate("fp32") / 2)
    together = lanes > 1 and op.kernel in ((2, 2), (3, 3))
    memory = moved(problem.nbytes, target) / _REACHED
    return max(memory, issued, 0.0 if together else cells * _NEXT) + OVERLAPPED * target.launch_seconds


_PLACE, _CELL_OF_PLACE, _NEXT_PLACE = 180, 60, 0.5e-6
"""Instructions of a thread for where its window is, and for a cell, as an H200 took for windows of four; and seconds
until a cell has come, or all of a small window: a guess."""


def _places_seconds(problem: KernelProblem, target: Target) -> float:
    op, gpu = problem.op, target.gpu
    assert isinstance(op, PoolPlaces)
    assert gpu is not None, "asked about GPUs alone"
    cells, elements = prod(op.kernel), problem.outputs[0].type.elements
    issued = elements * (_PLACE + _CELL_OF_PLACE * cells) / (target.rate("fp32") / 2)
    waves = max(1.0, elements / (gpu.sms * _THREADS))
    waits = waves * _NEXT_PLACE * (1 if cells <= _KNOWN_CELLS else cells)
    together = max(moved(problem.nbytes, target) / _REACHED, issued, waits)
    return together + OVERLAPPED * target.launch_seconds


def _single(problem: KernelProblem) -> float:
    """Rows of the implicit product are positions, columns the filters of a group."""
    op, shape = problem.op, problem.outputs[0].shape
    assert isinstance(op, Conv)
    return single_efficiency(shape[0] * prod(shape[2:]), shape[1] // op.groups)


_STEP, _ALONE, _CROWDED = 3.5e-8, 150, 7
"""Seconds of a step of a thread's sum, which waits for two loads; results up to which threads have the loads to
themselves, and how many times as long steps take at most where there are more. Fitted to 131 times of an H200."""


def _conv_latency(problem: KernelProblem) -> float:
    if in_single(problem):
        return 0.0
    _, made, *window = problem.inputs[op_operands(problem)[1]].shape
    crowded = min(max(problem.outputs[0].type.elements / _ALONE, 1.0), _CROWDED)
    return _STEP * crowded * made * prod(window)


RULES = (
    Rule(
        Pool,
        refuse_windows,
        _emit_pool,
        lambda problem: 0.02,
        gpu_seconds=_pool_seconds,
        pitched=channels_last,
        reads_apart=lambda problem: (0,) if channels_last(problem) else (),
        forms=(
            fold_slabs.FORM,
            pool_sliding.FORM,
            pool_staged.FORM,
            pool_staged.STREAMED,
            pool_staged.JOINED,
            pool_separated.FORM,
        ),
    ),
    Rule(
        LpPool,
        refuse_windows,
        _emit_pool,
        lambda problem: 0.02,
        gpu_seconds=_pool_seconds,
        forms=(
            pool_sliding.FORM,
            pool_staged.FORM,
            pool_staged.STREAMED,
            pool_staged.JOINED,
            pool_separated.FORM,
        ),
    ),
    Rule(
        PoolPlaces,
        _refuse_places,
        _emit_places,
        lambda problem: 0.02,
        gpu_seconds=_places_seconds,
        layouts=row_major,
        forms=(placed_rows.FORM, pool_sliding.FORM),
    ),
    Rule(
        Conv,
        refuse_windows,
        _emit_conv,
        lambda problem: 0.01,
        gpu_efficiency=0.0003,
        gpu_latency=_conv_latency,
        gpu_single=_single,
        layouts=conv_layouts,
        forms=(narrow_planes.FORM, stencils.FORM),
    ),
)
