"""What tiles of kernels for a product and the depthwise convolution behind it have in common where WGMMA makes the
product: each warpgroup has other channels."""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.grouped.kind import Load, gpu_of, limited_by
from bolt_build.families.grouped.neighbours.chain_tile import STEP, ChainShape, clocks_a_second
from bolt_build.families.grouped.shape import Shape
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

WARPS = 4
"""Warps of a warpgroup, each with 16 channels."""
BANK = 1024
"""Bytes from whose multiples on WGMMA counts what it reads."""


class WarpgroupTile(Numbered):
    """A block has `across` warpgroups and one of `parts` of the channels. `beside` of them fit on a multiprocessor.

    `begin` are seconds until a block has its first input and has stored its last results, `loads` bytes in a second
    that come from L2 to a multiprocessor, `alone` clocks of a scheduler for each instruction of a warp by itself. Where
    there may be several rounds, a block's warps go through its channels in these.
    """

    across: int
    parts: int
    beside: int

    begin: ClassVar[float]
    loads: ClassVar[float]
    alone: ClassVar[float]
    most_registers: ClassVar[int]
    most_rounds: ClassVar[int] = 1

    @property
    def slab(self) -> int:
        """Channels up to whose multiple weights have zeros behind them."""
        return STEP

    def n(self, chain: ChainShape) -> int:
        """Runs of eight results of a product behind: none."""
        return 0

    @property
    def warps(self) -> int:
        return WARPS * self.across

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def share(self, shape: Shape) -> int:
        """Times 16 channels of a block: a warp has so many in a round."""
        return ceil(ceil(shape.channels / STEP) / self.parts)

    def rounds(self, shape: Shape) -> int:
        """How often a block's warps have channels."""
        return ceil(self.share(shape) / self.warps)

    def refuse_registers(self, registers: int, gpu: Gpu) -> str | None:
        """Why so many registers of a thread are more than there are, None where they are not."""
        most = min(self.most_registers, gpu.registers // (self.threads * self.beside) // 8 * 8)
        form = "takes {} registers of a thread, {} threads beside each other have {}"
        return Reason(form, registers, self.threads * self.beside, most) if registers > most else None

    def refuse_block(self, shape: Shape, registers: int, shared: int, gpu: Gpu) -> str | None:
        """Why no blocks have the channels, so many registers of a thread and bytes of shared memory."""
        if (self.parts - 1) * self.share(shape) * STEP >= shape.channels:
            return Reason("{} channels leave some of {} blocks without any", shape.channels, self.parts)
        if self.rounds(shape) > self.most_rounds:
            most = self.parts * self.most_rounds * self.warps * STEP
            return Reason("{} blocks have but {} channels", self.parts, most)
        if (reason := self.refuse_registers(registers, gpu)) is not None:
            return reason
        if self.beside * (shared + 1024) > gpu.shared_memory + 1024:
            return Reason("{} blocks of {} bytes of shared memory do not fit beside each other", self.beside, shared)
        return refuse_shared(shared, gpu)

    def seconds_of(
        self, chain: ChainShape, blocks: int, load: Load, issued: float, held: float, target: Target
    ) -> float:
        """Predicted time: what schedulers issue for all warps that have channels, or one by itself waits for, round
        after round. A warp's part of a tile takes `issued` clocks, and `held` of them beside others."""
        shape, gpu, share = chain.conv, gpu_of(target), self.share(chain.conv)
        resident = min(self.beside, ceil(blocks / gpu.sms))
        rounds, left = divmod(share, self.warps)
        clocks = sum(
            max(self.alone * issued, ceil(warps * resident / 4) * held)
            for warps in (*[self.warps] * rounds, *([left] if left else []))
        )
        computed = clocks / clocks_a_second(target)
        constants = 2 * STEP * share * (chain.given + shape.taps)
        alone = self.begin + (load.read + constants) * resident / self.loads + computed
        # Blocks of one wave begin where others of the one before end, but the last ones have less to do.
        waves = max(1.0, blocks / (gpu.sms * resident))
        return limited_by(shape, load, blocks, 0.0, target, (waves + ceil(waves)) / 2 * alone)


def refuse_gpu(gpu: Gpu) -> str | None:
    """Why a GPU makes no products so."""
    return None if gpu.warpgroup_mma else "WGMMA comes with sm_90"
