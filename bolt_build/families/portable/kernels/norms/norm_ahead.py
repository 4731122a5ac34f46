"""How a GPU normalises in slabs that threads hold in registers, one after the other: the next one comes to shared
memory while blocks exchange statistics of this one and store it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import moved
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms import norm_held
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile, emit_held, refuse
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest_for
from bolt_build.families.portable.kernels.norms.norm_nest import bytes_of, element_bytes, operands_share, serves
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_MOST_SLABS = 32
"""Slabs of a block at most."""


@dataclass(frozen=True)
class AheadTile:
    """Slabs are cut as `held` says, and a cluster takes up to so many `slabs`."""

    held: HeldTile
    slabs: int

    @property
    def parameters(self) -> Named:
        return self.held.parameters

    @property
    def settings(self) -> Named:
        return (("slabs", self.slabs),)

    @staticmethod
    def read(reader: Reader) -> AheadTile:
        return AheadTile(HeldTile.read(reader), reader.number("slabs"))

    def shared(self, nest: HeldNest, element: int) -> int:
        """Bytes of shared memory of a block: what its threads hold once more, and sums (`NormAhead`)."""
        return self.held.loads * self.held.threads * LANES * element + self.held.memory(nest)

    def at_once(self, nest: HeldNest, element: int, gpu: Gpu) -> int:
        """Clusters that a GPU holds at once: registers have room for `held.resident` blocks of a multiprocessor."""
        shared = occupancy(self.held.threads, 1, self.shared(nest, element), gpu)
        return max(1, gpu.sms * min(self.held.resident, shared) // self.held.cluster)


def tiles(nest: HeldNest, element: int, gpu: Gpu) -> Iterator[AheadTile]:
    """Slabs as registers hold them without waiting in memory, so many a cluster that all clusters are there at once, or
    two or three rounds of them."""
    for held in norm_held.tiles(nest, element, gpu):
        loose, _ = held.at_once(element, gpu)
        room = occupancy(held.threads, 1, AheadTile(held, 2).shared(nest, element), gpu)
        if held.resident != loose or AheadTile(held, 2).shared(nest, element) > gpu.shared_memory:
            continue
        tile = AheadTile(replace(held, resident=min(loose, room)), 2)
        most = nest.slabs(held.width) / tile.at_once(nest, element, gpu)
        slabs = {min(_MOST_SLABS, ceil(most / rounds)) for rounds in (1, 2, 3)}
        yield from (replace(tile, slabs=each) for each in sorted(slabs) if each > 1)


def refuse_tile(tile: AheadTile, nest: HeldNest, element: int, gpu: Gpu) -> str | None:
    """Why no kernel normalises in such slabs on this GPU, None where one does."""
    if (reason := norm_held.refuse_tile(tile.held, nest, element, gpu)) is not None:
        return reason
    if not 1 < tile.slabs <= _MOST_SLABS:
        return Reason("a block takes 2 to {} slabs one after the other, not {}", _MOST_SLABS, tile.slabs)
    if tile.slabs > (many := nest.slabs(tile.held.width)):
        return Reason("there are {} slabs, of which a block takes {}", many, tile.slabs)
    together = tile.held.resident * (tile.shared(nest, element) + 1024)
    if together > gpu.shared_memory + 1024:
        what = "{} blocks take {} bytes of shared memory, a multiprocessor has {}"
        return Reason(what, tile.held.resident, together, gpu.shared_memory + 1024)
    return None


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse(problem, gpu)) is not None:
        return reason
    return None if gpu.async_copies else "copies to shared memory run beside a block's work from sm_80 on"


_BEGIN, _EXCHANGE = 4.9e-6, 1.2e-6
"""Seconds until the first slab has come and while the last one goes, and of a slab for a step of a cluster's size, in
powers of two: a block that waits for the others asks for nothing. Fitted, as those that follow are, to 60 kernels that
tuning measured on an H200, which take 10% more or less than that."""
_MEMORY, _SINGLE, _ISSUED, _BEHIND = 0.8, 0.47, 0.4, 1.5
"""What memory takes, what is added where a multiprocessor has one block, the part of instructions that no memory hides,
and what those of stages behind take: an H200 took so much longer with SiLU."""


def _seconds(problem: KernelProblem, tile: AheadTile, target: Target) -> float:
    """Memory waits for nothing but other blocks of a cluster, once a slab."""
    gpu, nest, element = target.gpu, held_nest_for(problem), element_bytes(problem)
    assert gpu is not None, "registers are a GPU's"
    rounds = ceil(nest.slabs(tile.held.width) / tile.slabs) / tile.at_once(nest, element, gpu)
    waits = tile.slabs * ceil(rounds) * log2(tile.held.cluster) * _EXCHANGE
    reached = norm_held.lines(tile.held, nest, element) * operands_share(nest) * min(1.0, rounds / ceil(rounds))
    memory = moved(bytes_of(problem), target) / reached * (_MEMORY + (_SINGLE if tile.held.resident == 1 else 0.0))
    issued = norm_held.issued(tile.held, nest, gpu)
    behind = norm_held.issued(tile.held, nest, gpu, tile.held.loads * norm_held.behind(problem)) - issued
    return float(_BEGIN + waits + memory + _ISSUED * issued + _BEHIND * behind)


def _emit(problem: KernelProblem, tile: AheadTile, at: StepExpressions) -> StepCode:
    return emit_held(problem, tile.held, "norm_in_registers_ahead", f"{tile.slabs}, ", at)


FORM: Form[AheadTile] = Form(
    "ahead",
    serves,
    _refuse,
    lambda problem, gpu: tiles(held_nest_for(problem), element_bytes(problem), gpu),
    lambda problem, tile, gpu: refuse_tile(tile, held_nest_for(problem), element_bytes(problem), gpu),
    _seconds,
    AheadTile.read,
    _emit,
)
