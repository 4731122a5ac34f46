"""The loops of a normalisation around neighbouring channels, and over their positions: what is cut in slabs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem, rate
from bolt_build.families.common.cost import roofline
from bolt_build.families.common.geometry import Loop
from bolt_build.families.common.text_form import Named
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.kernels.norms.norm_loops import Loops, loops_of, norm_text
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu, Target

WIDEST = 64
"""Loads of a slab's width at most."""


@dataclass(frozen=True)
class Nest:
    """`kept` are the loops around `channels`, `positions` those inside; steps as in the loops that they are made of.
    `group` neighbouring channels have one statistic."""

    kept: tuple[Loop, ...]
    positions: tuple[Loop, ...]
    channels: Loop
    group: int

    @property
    def many(self) -> int:
        """Positions of a channel."""
        return prod(loop.extent for loop in self.positions)

    def slabs(self, width: int) -> int:
        """Slabs of `width` channels in the whole problem."""
        return prod(loop.extent for loop in self.kept) * (self.channels.extent // width)

    @property
    def operands(self) -> str:
        """What is known of scale and bias (`NormOperands`)."""
        around = [step for loop in (*self.kept, *self.positions) if loop.extent > 1 for step in loop.steps[1:3]]
        if not any(step for loop in self.positions if loop.extent > 1 for step in loop.steps[1:3]):
            return "fixed"
        loads = set(self.channels.steps[1:3]) == {1} and not any(step % LANES for step in around)
        return "side_by_side" if loads else "any"


def _scaled(loop: Loop, by: int) -> tuple[int, ...]:
    return tuple(step * by for step in loop.steps)


def _are_channels(inner: Loop, positions: Sequence[Loop]) -> bool:
    """Whether the loop has a scale or a bias of each element, and those around it have none; and no more elements than
    a slab may be wide."""
    own, around = any(inner.steps[1:3]), any(step for loop in positions for step in loop.steps[1:3])
    return own and not around and bool(positions) and inner.extent <= WIDEST * LANES and inner.extent % LANES == 0


def nest_of(loops: Loops) -> Nest | str:
    """Loops around, inside and along neighbouring channels, or why loads of channels would not be aligned."""
    nest: Nest | None = None
    kept, reduced = loops.kept, loops.reduced
    *outer, last = kept
    *positions, inner = reduced
    if last.steps[0] == 1 and last.extent > 1:
        nest = Nest(tuple(outer), reduced, last, 1)
    elif inner.steps[0] == 1 and positions and last.steps == _scaled(inner, inner.extent):
        channels = Loop(last.extent * inner.extent, inner.steps)
        nest = Nest(tuple(outer), tuple(positions), channels, inner.extent)
    elif inner.steps[0] == 1 and _are_channels(inner, positions):
        # All of an image has one statistic: its channels are a slab, which scale and bias are the same for everywhere.
        nest = Nest(kept, tuple(positions), inner, inner.extent)
    elif inner.steps[0] == 1 and inner.extent % LANES == 0:
        # One statistic of all that lies side by side, as much of it a slab's width as a warp's threads share evenly.
        across = next(each for each in (8, 4, 2, 1) if inner.extent % (each * LANES) == 0)
        rest = Loop(inner.extent // (across * LANES), _scaled(inner, across * LANES))
        nest = Nest(kept, (*positions, rest), Loop(across * LANES, inner.steps), across * LANES)
    if nest is None:
        what = "{} elements side by side have one statistic, no multiple of the {} that a thread loads at once"
        return Reason(what, inner.extent, LANES)
    if nest.channels.extent % LANES:
        return Reason("{} channels are no multiple of the {} that a thread loads at once", nest.channels.extent, LANES)
    return nest


class InSlabs:
    """A tile of slabs: `across` loads of `LANES` channels each, in blocks of so many `threads`."""

    across: int
    threads: int

    @property
    def parameters(self) -> Named:
        return ()

    @property
    def width(self) -> int:
        """Channels of a slab."""
        return self.across * LANES

    @property
    def parts_of_sums(self) -> int:
        """Sums of a channel that a block's threads have apart."""
        return self.threads // WARP if WARP % self.across == 0 else self.threads // self.across

    def refuse_slab(self, nest: Nest) -> str | None:
        """Why the channels are not cut so, whatever else the tile says; None where they are."""
        if nest.channels.extent % self.width:
            return Reason("{} channels are no whole slabs of {}", nest.channels.extent, self.width)
        if self.width % nest.group:
            return Reason("a slab of {} channels has no whole groups of {}", self.width, nest.group)
        if self.across > self.threads:
            return Reason("{} threads are fewer than the {} loads of a position", self.threads, self.across)
        return None


@functools.lru_cache(maxsize=256)
def nest_for(problem: KernelProblem) -> Nest:
    """The nest of a problem that is not refused."""
    found = nest_of(loops_of(problem))
    assert isinstance(found, Nest), found
    return found


def loops_text(problem: KernelProblem, nest: Nest) -> str:
    """The normalisation as C++, twice: with the loops that it has, and with those of its nest."""
    op = problem.op
    assert isinstance(op, Norm), op
    loops = loops_of(problem)
    kept = nest.kept or (Loop(1, (0, 0, 0, 0)),)
    return ", ".join(norm_text(*each, op.epsilon) for each in ((loops.kept, loops.reduced), (kept, nest.positions)))


_APART = 1.1e-6
"""Seconds of a load whose place a thread finds by itself: it asks for no other meanwhile. Of 65 kernels of slabs and of
passes for three shapes on an H200."""


def found(nest: Nest, loads: float) -> float:
    """Seconds in which a thread finds the places of so many loads, where those of a slab lie apart: in rows, those of
    several channels do."""
    return _APART * loads if len(nest.positions) > 1 else 0.0


def element_bytes(problem: KernelProblem) -> int:
    """Of what is normalised."""
    return problem.inputs[0].format.dtype.nbytes


def bytes_of(problem: KernelProblem, again: int = 1) -> int:
    """That memory moves for kernels whose threads have neighbouring elements of whole loads: results twice as wide are
    stored in two halves, each of every other sixteen bytes, and count `again` as often as once."""
    wider = problem.outputs[0].format.dtype.nbytes > element_bytes(problem)
    return problem.nbytes + (again * problem.outputs[0].nbytes if wider else 0)


def serves(problem: KernelProblem) -> bool:
    """Where registers have room for rows, the plain kernel reads each element once too."""
    return isinstance(problem.op, Norm) and not loops_of(problem).in_registers[0]


def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why nothing can be cut in slabs, None where it can."""
    found = nest_of(loops_of(problem))
    return found if isinstance(found, str) else None


_ARITHMETIC = 0.4
"""A guess at the part of a GPU's peak rate in single precision that plain arithmetic reaches."""
_OPERANDS = 0.6
"""A guess at what is left of the bandwidth where each element has a scale and a bias of its own, which L2 reads."""


def operands_share(nest: Nest) -> float:
    """What is left of the bandwidth beside scale and bias."""
    return 1.0 if nest.operands == "fixed" else _OPERANDS


def seconds_of(problem: KernelProblem, target: Target, reached: float) -> float:
    """Predicted time where memory moves the problem's bytes at `reached` times its bandwidth."""
    efficiency = _ARITHMETIC * target.rate("fp32") / rate(problem, target)
    return roofline(problem, target, efficiency, reached)
