"""What slabs are that registers hold: neighbouring channels of images, all channels of several pixels where single ones
are no whole loads, and planes that have one statistic."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import ceil, gcd

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.kernels.lines.rows import LANES
from bolt_build.families.portable.kernels.norms.norm_images import Images, images_of
from bolt_build.families.portable.kernels.norms.norm_loops import loops_of
from bolt_build.families.portable.kernels.norms.norm_nest import Nest, nest_of
from bolt_build.families.reason import Reason


@dataclass(frozen=True)
class HeldNest(Nest):
    """A position has all channels of so many pixels (`repeats`), or a load of planes of `plane` elements. `along` is
    the loop over channels, or over planes, as scale and bias have them. Images that are no whole
    loads have so many elements (`length`), and begin anywhere in a load."""

    along: Loop
    repeats: int = 1
    plane: int = 0
    length: int = 0

    @property
    def statistics(self) -> int:
        """Of all channels."""
        return self.channels.extent // self.repeats // self.group

    @property
    def planes(self) -> int:
        return self.along.extent if self.plane else 0

    @property
    def scaled(self) -> int:
        """Planes, or channels of several pixels, whose scales and biases shared memory has."""
        return self.along.extent if self.plane or self.repeats > 1 else 0


def _of_images(images: Images) -> HeldNest | str:
    if images.plane == 1:
        return Reason("each element of a row has a scale")
    if images.length >= 1 << 24:
        return Reason("{} elements of an image are more than a float counts", images.length)
    length = images.length if images.length % LANES else 0
    if images.plane:
        if images.plane < LANES:
            return Reason("planes of {} elements are shorter than the {} of a load", images.plane, LANES)
        positions, load = Loop(images.loads, (LANES, 0, 0, 0)), Loop(LANES, (1, 0, 0, 0))
        return HeldNest(images.kept, (positions,), load, LANES, images.channels, 1, images.plane, length)
    repeats = LANES // gcd(images.width, LANES)
    together = repeats * images.width
    positions = Loop(ceil(images.loads / images.period), (together, 0, 0, 0))
    channels = Loop(together, images.channels.steps)
    return HeldNest(images.kept, (positions,), channels, images.group, images.channels, repeats, 0, length)


@functools.lru_cache(maxsize=256)
def held_nest(problem: KernelProblem) -> HeldNest | str:
    """The slabs of a normalisation, or why its loads would not be aligned."""
    found = nest_of(loops_of(problem))
    if isinstance(found, Nest) and len(found.positions) == 1:
        return HeldNest(found.kept, found.positions, found.channels, found.group, found.channels)
    images = images_of(problem)
    if images is not None:
        return _of_images(images)
    return Reason("positions lie in several loops") if isinstance(found, Nest) else found


def held_nest_for(problem: KernelProblem) -> HeldNest:
    """The slabs of a problem that is not refused."""
    found = held_nest(problem)
    assert isinstance(found, HeldNest), found
    return found
