"""How a GPU computes recurrent layers in half precision on its tensor cores: weights stay in the shared memory of a
block, or of a cluster whose blocks exchange hidden states at every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.recurrent.recurrent_tensors import arguments
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.recurrent.recurrent import GATES, Recurrent
from bolt_build.targets import Gpu, Target

ROWS, CLUSTERS, THREADS = (8, 16), (1, 2, 4, 8), (256, 512)
"""Rows of the batch that a block has, blocks of a cluster, and most threads of a block."""
_DEPTH, _STAGES, _PAD, _UNITS = 32, 4, 8, 16
"""Of the kernel's header: states of a chunk, chunks that are under way, elements between rows of shared memory; and
hidden units of a warp."""
_LOADS = (8, 4, 2, 1)
_REGISTERS = 128
"""Of a thread."""


@dataclass(frozen=True)
class HalfRecurrentTile(NumberTile):
    """The `cluster` blocks of `rows` rows share the hidden units. Weights of `kept` chunks stay in shared memory, those
    of others are copied at every step. `threads`: the most that a block has."""

    SETTINGS = ("cluster", "kept")

    rows: int
    threads: int
    cluster: int
    kept: int


@dataclass(frozen=True)
class _Share:
    """What a block of a problem has: hidden units, chunks of states, and gates."""

    units: int
    chunks: int
    gates: int

    @property
    def chunk(self) -> int:
        """Bytes of a chunk's weights."""
        return 2 * _DEPTH * (self.gates * self.units + _PAD)

    def shared(self, tile: HalfRecurrentTile) -> int:
        """Bytes of shared memory of a block (`half_recurrent_bytes`)."""
        width = max(_DEPTH * self.chunks, tile.cluster * self.units)
        buffers = tile.kept + (_STAGES if tile.kept < self.chunks else 0)
        return 4 * tile.rows * (width + _PAD) + buffers * self.chunk


def _share(problem: KernelProblem, cluster: int) -> _Share:
    assert isinstance(problem.op, Recurrent)
    hidden = problem.inputs[1].shape[1]
    return _Share(_UNITS * ceil(ceil(hidden / cluster) / _UNITS), ceil(hidden / _DEPTH), GATES[problem.op.cell])


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    assert isinstance(problem.op, Recurrent)
    dtype = problem.inputs[1].format.dtype
    if dtype not in HALVES:
        return "multiplies states with weights in f16 or bf16"
    precision = next(name for name, each in PRECISIONS.items() if each is dtype)
    if gpu.instruction(precision) is None:
        return f"the GPU's tensor cores do not multiply {dtype.value}"
    if problem.op.cell == "gru" and not problem.op.reset_after:
        return "a reset gate in front of the product makes it two"
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[HalfRecurrentTile]:
    """Each with as many chunks in shared memory as have room."""
    batch = problem.outputs[0].shape[1]
    for rows in ROWS:
        if rows >= 2 * max(batch, 8):
            continue
        for cluster in CLUSTERS:
            share = _share(problem, cluster)
            threads = next((most for most in THREADS if 2 * share.units <= most), THREADS[-1])
            whole = HalfRecurrentTile(rows, threads, cluster, share.chunks)
            bare = share.shared(replace(whole, kept=0))
            fit = max(1, min(share.chunks - 1, (gpu.shared_memory - bare) // share.chunk))
            yield whole if share.shared(whole) <= gpu.shared_memory else replace(whole, kept=fit)


def _refuse_tile(problem: KernelProblem, tile: HalfRecurrentTile, gpu: Gpu) -> str | None:
    if tile.rows not in ROWS or tile.cluster not in CLUSTERS or tile.threads not in THREADS:
        return "there are kernels of 8 or 16 rows, of 1, 2, 4 or 8 blocks a cluster, and of 256 or 512 threads"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    hidden, share = problem.inputs[1].shape[1], _share(problem, tile.cluster)
    if (tile.cluster - 1) * share.units >= hidden:
        return Reason("{} hidden units leave one of {} blocks without any", hidden, tile.cluster)
    if 2 * share.units > tile.threads:
        return Reason(
            "a block's {} hidden units take {} threads, it has {}", share.units, 2 * share.units, tile.threads
        )
    if tile.kept > share.chunks:
        return Reason("{} chunks are kept, of {} states there are {}", tile.kept, hidden, share.chunks)
    return refuse_shared(share.shared(tile), gpu)


_STEP, _CELLS, _CHUNK, _MEET = 0.1e-6, 0.9e-6, 0.08e-6, 0.85e-6
"""Seconds of a step: what waits, cells of eight rows, the products of a chunk, an exchange in a cluster. Fitted to 18
kernels for six layers on an H100."""
_L2, _BLOCK = 2.0, 4.5e10
"""The bandwidth of the L2 cache in that of the memory, which is a guess; and bytes/s of weights that come to one
multiprocessor again and again, fitted as well."""


def _seconds(problem: KernelProblem, tile: HalfRecurrentTile, target: Target) -> float:
    """A step multiplies chunks behind each other, and waits for those that come again and for the exchange."""
    gpu, share = target.gpu, _share(problem, tile.cluster)
    assert gpu is not None, "tensor cores are a GPU's"
    steps, batch, _ = problem.inputs[0].shape
    blocks = problem.inputs[1].shape[0] * ceil(batch / tile.rows) * tile.cluster
    resident = occupancy(2 * share.units, _REGISTERS, share.shared(tile), gpu)
    busy = min(blocks, gpu.sms)
    streamed = (share.chunks - tile.kept) * share.chunk / min(_BLOCK, _L2 * target.bandwidth / busy)
    own = _CELLS * tile.rows / 8 + share.chunks * _CHUNK
    together = min(resident, ceil(blocks / gpu.sms))
    a_step = _STEP + (streamed + own) * together + (_MEET if tile.cluster > 1 else 0.0)
    first = tile.kept * share.chunk / _BLOCK
    return max(ceil(blocks / (gpu.sms * resident)) * (first + steps * a_step), problem.nbytes / target.bandwidth) + (
        target.launch_seconds
    )


def _emit(problem: KernelProblem, tile: HalfRecurrentTile, at: StepExpressions) -> StepCode:
    hidden, share = problem.inputs[1].shape[1], _share(problem, tile.cluster)
    load = next(load for load in _LOADS if hidden % load == 0)
    shared = struct(
        "bolt::portable::RecurrentShare",
        cluster=tile.cluster, units=share.units, chunks=share.chunks, kept=tile.kept,
    )  # fmt: skip
    layer, cell, tensors = arguments(problem, at)
    call = (
        f"bolt::portable::half_recurrent<{tile.rows}, {load}, {tile.threads}>(r, {layer}, {shared}, {cell}, {tensors});"
    )
    return StepCode(("bolt_portable/cuda/recurrent/half_recurrent.h",), None, "", call)


FORM: Form[HalfRecurrentTile] = Form(
    "tensor_cores", lambda problem: isinstance(problem.op, Recurrent), _refuse, _tiles, _refuse_tile, _seconds,
    HalfRecurrentTile.read, _emit,
)  # fmt: skip
