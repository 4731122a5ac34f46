"""How a GPU attends over channels in half precision on its tensor cores: a block has a head of an image, in tiles of 64
rows, and nothing is transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.attention.channel_heads import channel_heads, parameters, types
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.attention.channel_attention import DEEPEST, STATISTICS, ChannelAttention
from bolt_build.targets import Gpu, Target

_TILE, _THREADS = 64, 128
"""Of the kernel's header: rows of a tile, and threads of a block."""
_LANES = (8, 4, 2)
"""Channels that may be copied at once: as many as begin every head and row."""


@dataclass(frozen=True)
class ChannelTile(NumberTile):
    """So many tiles are on their way at once."""

    stages: int


def _depth(problem: KernelProblem) -> int:
    """Up to the next whole instruction."""
    return ceil(channel_heads(problem).depth / 16) * 16


def _lanes(problem: KernelProblem, pitch: int) -> int:
    """Channels of a copy, where rows are so many elements apart."""
    return next(lanes for lanes in _LANES if channel_heads(problem).depth % lanes == pitch % lanes == 0)


def _shared(problem: KernelProblem, tile: ChannelTile) -> int:
    """Of `Memory`: tiles of queries and keys, powers, sums, lengths, and what sums of powers divide by."""
    depth = _depth(problem)
    return (tile.stages * 2 * _TILE + depth) * (depth + 8) * 2 + depth * (depth + 4) * 4 + 3 * depth * 4


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op, of, (rows, *_) = problem.op, channel_heads(problem), problem.inputs
    assert isinstance(op, ChannelAttention)
    if rows.format.dtype not in HALVES:
        return "multiplies channels in f16 or bf16"
    if of.depth > DEEPEST or of.depth % _LANES[-1]:
        return Reason("heads have {} channels, even numbers up to {} are supported", of.depth, DEEPEST)
    if op.statistic not in STATISTICS:
        return f"sums terms of channels, not their {op.statistic}"
    precision = next(name for name, each in PRECISIONS.items() if each is rows.format.dtype)
    if gpu.instruction(precision) is None:
        return f"the GPU's tensor cores do not multiply {rows.format.dtype.value}"
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ChannelTile]:
    for stages in (4, 2):
        yield ChannelTile(stages)


def _refuse_tile(problem: KernelProblem, tile: ChannelTile, gpu: Gpu) -> str | None:
    if tile.stages not in (2, 4):
        return Reason("keeps {} tiles, kernels keep 2 or 4", tile.stages)
    return refuse_shared(_shared(problem, tile), gpu)


_BEGIN, _PRODUCTS, _COPY = 1.95e-6, 0.61e-6, 0.051e-6
"""Seconds in which blocks begin, make shares and end; in which a block multiplies a tile of 32 channels, with all that
its warps wait for between two tiles; and in which a thread begins a copy. Fitted to five layers on an H200: a block
goes through its tiles one by one, and of two tiles on their way it is as fast as of four. Fewer channels were not
timed."""


def _seconds(problem: KernelProblem, tile: ChannelTile, target: Target) -> float:
    of, gpu = channel_heads(problem), target.gpu
    assert gpu is not None, "tensor cores are a GPU's"
    depth, tiles = _depth(problem), ceil(of.rows / _TILE)
    copies = _TILE * depth / _lanes(problem, problem.inputs[0].row) / _THREADS
    registers = 64 + 3 * depth
    resident = occupancy(_THREADS, registers, _shared(problem, tile), gpu) * gpu.sms
    rounds = ceil(of.images * of.heads / resident)
    block = tiles * (2 * _PRODUCTS * max(1.0, depth / 32) ** 2 + 3 * copies * _COPY)
    return _BEGIN + rounds * block + problem.nbytes / target.bandwidth + target.launch_seconds


def _emit(problem: KernelProblem, tile: ChannelTile, at: StepExpressions) -> StepCode:
    lanes = _lanes(problem, at.input_pitch(0) or problem.inputs[0].row)
    call = (
        f"bolt::portable::half_channel_attention<{_depth(problem)}, {tile.stages}, {lanes}, {types(problem)}>"
        f"(r, {parameters(problem, at)}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/cuda/attention/half_channel_attention.h",), None, "", call)


FORM: Form[ChannelTile] = Form(
    "tensor_cores", lambda problem: isinstance(problem.op, ChannelAttention), _refuse, _tiles, _refuse_tile, _seconds,
    ChannelTile.read, _emit,
)  # fmt: skip
