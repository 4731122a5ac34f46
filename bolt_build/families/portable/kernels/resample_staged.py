"""Planes that are resampled through shared memory: a block reads the rows of its results once, in whole accesses
wherever they begin, its threads go down them there, and the results are stored in whole accesses too."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.pool_windows import channels_last
from bolt_build.families.portable.kernels.resample_images import ImageAxis, Images, arguments, images_of
from bolt_build.families.portable.kernels.rows import WARP
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ACCESS = 16
"""Bytes of an access."""
_PIXELS, _STRIPS, _PLANES = (1, 2, 3, 4, 6, 8), (1, 2, 4, 8), (2, 4, 8, 16, 32)
"""Pixels of a row that a thread may have, strips of a block, and planes beside each other that are tried."""
_DOWNS = (1, 2, 4, 8, 12, 16, 24, 32)
"""Results of a thread below each other that are tried."""
_LEAST, _MOST = 64, 512
"""Threads of a block."""
_ROOM, _OTHERS = 128, 28
"""Registers that tables of columns and rows may take of a thread's 255, and those for all else."""
_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class StagedResampleTile(NumberTile):
    """A thread has `pixels` elements, which lie apart, of each of `down` rows below each other. A block has `strips` of
    these, of `planes` planes beside each other: of several planes all rows."""

    SETTINGS = ("down",)

    pixels: int
    planes: int
    strips: int
    down: int

    @property
    def results(self) -> int:
        """Rows of a block, at most."""
        return self.strips * self.down

    def across(self, images: Images) -> int:
        """Threads of a strip: whole warps."""
        return WARP * ceil(self.planes * images.columns.made * images.inner / (WARP * self.pixels))

    def block(self, images: Images) -> int:
        """Threads of a block."""
        return self.strips * self.across(images)

    def blocks(self, images: Images) -> int:
        return ceil(images.outer / self.planes) * ceil(images.rows.made / self.results)

    def registers(self, images: Images) -> int:
        """Places and weights of columns, the rows that a result is made of, and where a thread stores."""
        width, height = max(images.columns.taps, 1), max(images.rows.taps, 1)
        return self.pixels * (2 * width + height + (self.planes > 1))

    def given(self, images: Images) -> int:
        """Elements of the input for which a block has room, as images need them."""
        rows = images.rows
        need = rows.extent if self.planes > 1 else _rows_of(rows, min(self.results, rows.made))
        return ((self.planes - 1) * rows.extent + need) * images.columns.extent * images.inner

    def made(self, images: Images) -> int:
        """Elements of a block's results."""
        rows = self.planes * images.rows.made if self.planes > 1 else self.results
        return rows * images.columns.made * images.inner

    def shared(self, images: Images) -> int:
        """Bytes of shared memory of a block (`ResampledTile`)."""
        taps = images.rows.taps
        weights = 0 if taps == 0 else 8 if taps > 4 else 4 if taps > 2 else taps
        tables = 4 * weights * self.results, 4 * (self.results + 1)
        runs = (elements * images.nbytes + _ACCESS - 1 for elements in (self.given(images), self.made(images)))
        return sum(_ACCESS * ceil(nbytes / _ACCESS) for nbytes in (*tables, *runs))


def _rows_of(rows: ImageAxis, results: int) -> int:
    """Rows of the input that so many results below each other are made of, at most, as images are resized."""
    if rows.taps == 0:
        return results
    step = max(rows.extent / rows.made, (rows.extent - 1) / max(rows.made - 1, 1))
    return min(ceil((results - 1) * step) + rows.taps + 1, rows.extent)


@functools.lru_cache(maxsize=256)
def _planes(problem: KernelProblem) -> Images:
    """Of columns that stay each element is one."""
    images = images_of(problem)
    if images.columns.taps:
        return images
    elements = images.columns.made * images.inner
    return replace(images, columns=ImageAxis(elements, elements, 0), inner=1)


def _serves(problem: KernelProblem) -> bool:
    return problem.outputs[0].type.elements > 0 and not channels_last(problem)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    images = _planes(problem)
    rows = images.rows
    if rows.taps * rows.made < rows.extent and rows.taps:
        what = "of {} rows, results are made of {} at most: others are not to be read"
        return Reason(what, rows.extent, rows.taps * rows.made)
    plane = max(rows.extent * images.columns.extent, rows.made * images.columns.made) * images.inner
    if (nbytes := plane * images.nbytes) > _LONGEST:
        return Reason("planes of {} bytes are too large to be counted in 32 bits", nbytes)
    return None


def _tiles(images: Images) -> Iterator[StagedResampleTile]:
    """Of several planes where one has few pixels."""
    made = images.rows.made
    downs = sorted({ceil(made / ceil(made / down)) for down in _DOWNS})
    for pixels in _PIXELS:
        for down in downs:
            strips = ceil(made / down)
            of_one = sorted({min(each, strips) for each in _STRIPS})
            tiles = [StagedResampleTile(pixels, 1, each, down) for each in of_one]
            if strips <= _STRIPS[-1]:
                tiles += (StagedResampleTile(pixels, planes, strips, down) for planes in _PLANES)
            for tile in tiles:
                if tile.planes < 2 * images.outer and tile.block(images) <= 2 * _MOST:
                    yield tile


def refuse_tile(tile: StagedResampleTile, images: Images, gpu: Gpu) -> str | None:
    """Why no kernel resamples so on this GPU, None where one does."""
    if not 1 <= tile.down <= images.rows.made:
        return Reason("a thread has {} results below each other, an image {}", tile.down, images.rows.made)
    if tile.planes > 1 and tile.results < images.rows.made:
        what = "a block that has {} rows of each of several planes has not all {}"
        return Reason(what, tile.results, images.rows.made)
    if not _LEAST <= (block := tile.block(images)) <= _MOST:
        return Reason("blocks have {} to {} threads, not {}", _LEAST, _MOST, block)
    if (needed := tile.registers(images)) > _ROOM:
        return Reason("takes {} registers of a thread for rows and tables, which has {} for these", needed, _ROOM)
    return refuse_shared(tile.shared(images), gpu)


_REACHED, _TAIL = 0.9, 0.5
"""The part of a GPU's bandwidth at which bytes move, and the part of a round of blocks that the last ones take alone.
These and the following are guesses from the kernel's code, for no GPU has timed it yet."""
_BEGIN, _COLUMN, _PLACE = 160, 30, 10
"""Instructions of a thread for its place and its block's tables, for each of its pixels, and for each of their
neighbours."""
_ROW, _NEIGHBOUR, _RESULT, _STORE, _COPY = 9, 3, 15, 2.5, 14
"""The same of a row of the input, for each neighbour in it, of a result, for each of its pixels beside its weights, and
of a whole access of the block."""
_SHARED = 4
"""Instructions of which an access to shared memory takes the place."""
_ISSUED = 1.15
"""What an instruction takes of the rate of multiply-adds."""
_WAITS, _DOWN = 0.8e-6, 0.04e-6
"""Seconds of a block in which it moves nothing: until its rows have come, and for each row that threads go down."""
_BESIDE = 0.25
"""The part of what takes less time that is not hidden behind what takes longest."""


def _issued(tile: StagedResampleTile, images: Images) -> float:
    """Instructions of all threads, or the places of as many that accesses to shared memory take."""
    rows, width, pixels = images.rows, max(images.columns.taps, 1), tile.pixels
    strips = ceil(rows.made / tile.down) * ceil(images.outer / tile.planes)
    down = rows.made / ceil(rows.made / tile.down)
    given = down * rows.extent / rows.made + max(rows.taps, 1) - 1
    copies = (tile.given(images) + tile.made(images)) * images.nbytes / _ACCESS / tile.block(images)
    begin = _BEGIN + pixels * (_COLUMN + _PLACE * width) + copies * _COPY
    own = begin + given * (_ROW + _NEIGHBOUR * width * pixels) + down * (_RESULT + (_STORE + rows.taps) * pixels)
    shared = given * width * pixels + down * (2 + pixels) + copies * _SHARED
    return strips * tile.across(images) * max(own, _SHARED * shared)


def _seconds(problem: KernelProblem, tile: StagedResampleTile, target: Target) -> float:
    """What takes longest of the bytes and the instructions. Bytes of a block move while others wait or compute."""
    gpu, images = target.gpu, _planes(problem)
    assert gpu is not None, "rows are staged on GPUs"
    blocks, shared = tile.blocks(images), tile.shared(images)
    resident = beside(tile.block(images), tile.registers(images) + _OTHERS, shared, gpu)
    rounds = blocks / (resident * gpu.sms)
    nbytes, there = problem.nbytes / blocks, min(float(resident), blocks / gpu.sms)
    every = moved(problem.nbytes, target)
    waits = (_WAITS + _DOWN * tile.down) * problem.nbytes / gpu.sms / (nbytes * there)
    memory = every / _REACHED + waits * min(1.0, rounds)
    issued = _ISSUED * _issued(tile, images) / (target.rate("fp32") / 2)
    longest = max(memory, issued)
    together = longest + _BESIDE * (memory + issued - longest)
    return float(together * (rounds + _TAIL) / rounds + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: StagedResampleTile, at: StepExpressions) -> StepCode:
    images = _planes(problem)
    rows, columns = images.rows, images.columns
    numbers = (
        rows.extent, rows.made, rows.taps, columns.extent, columns.made, columns.taps, images.inner,
        tile.planes, tile.pixels, tile.strips,
    )  # fmt: skip
    parameters, axes = arguments(images, at)
    shape = f"bolt::portable::ResampledTile<{', '.join(map(str, numbers))}>"
    call = (
        f"bolt::portable::resample_staged<{ctype(problem.inputs[0].format.dtype)}, {shape}>(r, {parameters}, {axes}, "
        f"{tile.down}, {tile.given(images)}, {at.inputs[0]}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/resample.h",), None, "", call)


FORM: Form[StagedResampleTile] = Form(
    "staged",
    _serves,
    _refuse,
    lambda problem, gpu: _tiles(_planes(problem)),
    lambda problem, tile, gpu: refuse_tile(tile, _planes(problem), gpu),
    _seconds,
    StagedResampleTile.read,
    _emit,
)
