"""The predicted time of kernels of WGMMA (`wgmma.py`)."""

from __future__ import annotations

import math
from math import ceil
from typing import Protocol

from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE, REGISTERS
from bolt_build.families.cutlass.problems.product import Work
from bolt_build.targets import Gpu, Target


class TimedTile(Protocol):
    """What of a tile its kernel's time follows from: `WgmmaTile`."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def cluster(self) -> tuple[int, int]: ...
    @property
    def cooperative(self) -> bool: ...
    @property
    def warpgroups(self) -> int: ...
    @property
    def pairs(self) -> bool: ...
    @property
    def single(self) -> bool: ...
    def blocks(self, m: int, n: int) -> int:
        """Blocks that a product of so many rows and columns takes."""
        ...


# Fitted to 1426 kernels measured on an H200, of recipes and of 37 networks that no recipe names, in the order that is
# usual; off by 10%, and so for a third of the products, to which nothing was fitted. Products in a second of one SM;
# seconds of a step, of a store, of that of 128 x 128 results and of a launch; bytes in a second from memory, in parts
# of what the row states (outputs may stay in L2), and of one SM from L2.
_MULTIPLIES = 4.05e12
_STEP, _STORE_BEGINS, _STORE, LAUNCH = 1.16e-7, 0.35e-7, 1.17e-6, 2.3e-6
_MEMORY, _L2_RATE, _OVERLAP = 1.27, 9.05e10, 0.276
_SOON, _SOON_WITHIN = 0.6e-6, 1.6e-6
"""Seconds by which the launch of a kernel without work is shorter, because launches overlap, and the seconds of work
from which on it is not. Fitted to 404 products of less than four microseconds."""
_L2, _SMALLER_L2 = 60 << 20, 1.75
"""Bytes of the H200's L2, and the exponent with which the rate from a smaller one falls. An H100 timed products with
clusters and without (`cluster_reads.json`)."""
_STORE_SIZE, _IN_FLIGHT = 0.963, 0.352
"""Exponents with which a store's time, and the rate from memory, grow with the tile."""
_WINDOWS = 0.946
"""Steps over windows take so much of the time of others."""
_SHALLOW = 1.8
"""Steps of less than 64 columns of depth, a short run of each row, take this much longer."""
_TOGETHER, _PLAIN_TOGETHER, _THREE_TOGETHER = 1.21, 1.1, 1.14
"""Warpgroups that share a tile multiply this much more slowly: they wait for each other. Two and three wait less for a
product without windows, as 438 kernels on an H200 and an H100 did, off by 15%."""
_RESIDUAL = 0.4e-6
"""Seconds in which a residual of 128 x 128 comes where nothing is multiplied meanwhile: warpgroups share a tile."""
_SINGLE = 2e-8
"""Seconds that a block with half of a multiprocessor takes longer. A guess, so that others
come first where all else is alike: what these gain is for measurement to say."""
_MANY_SUMS = 1.15
"""How much longer than predicted tiles take whose threads hold more than 128 sums: they read less of the factors, which
gains less than predictions reckon with. On an H200 five products took 1.02 to 1.15 times as long, beside 128 x 128."""
_PAIRS_STORE, _PAIRS_MULTIPLY = 1.05, 1.16
"""Part of a store's time that each takes where two pairs of warpgroups store at once, and how much longer products take
that two pairs multiply at once."""
_FUNCTION = 0.91e-7
"""Seconds of a store of 128 x 128 results for each instruction that activations take of a result."""
_BETWEEN, _BETWEEN_FUNCTION = 1.1e-6, 1.1e-7
"""Seconds in which 128 x 128 sums of a first product become the A operand of a second, and for each instruction that
activations in between take of one."""
_GATE = 0.6e-6
"""Seconds in which teams of warpgroups that take turns gate 128 x 128 sums, whatever is under way meanwhile. Fitted to
15 kernels on an H100, off by 7%. Warpgroups that share a tile take none that shows."""
_ROWS = {128: 0.78e-9, 64: 0.7e-9, 32: 1.2e-9, 16: 2.9e-9}
"""Seconds in which TMA brings a row of up to 64 columns of a step to an SM, by the bytes of which the distance between
rows is a multiple: those that begin within a line of L2 touch more of them."""
_FAR, _FAR_STRIDE = 2.1, 2
"""Rows of windows further apart than so many positions take so much longer."""
_UNEVEN, _FEW, _BROAD = 1.12, 1.1, 0.94
"""Windows take this much longer in all whose channels are no whole runs of 64, in tiles of at most 64 columns and 192
rows at least, which wait for shared memory, and in others of 128 columns at least, of whole runs. Fitted to 542
kernels, off by 9% with them and by 10 to 13% without."""
_UNEVEN_TILE, _BROAD_TILE = 128 * 64, 128 * 128
"""Elements at least of tiles that whole runs of channels matter to, and of those that their columns do."""
_TWO_RUNS = 1.9
"""Windows of more than 64 columns of depth, which take two loads each, take this much longer in all."""


def seconds(
    tile: TimedTile, work: Work, target: Target, then: int | None = None, before: float = 0.0, beside: float = 0.0
) -> float:
    """Predicted time of a product whose tiles are dealt out to as many blocks as there are SMs, its launch included.
    What the other parameters are is said of `work_seconds`."""
    taken = work_seconds(tile, work, target, then, before, beside)
    plain = then is None and before == 0.0
    return LAUNCH + taken - (_SOON * max(0.0, 1.0 - taken / _SOON_WITHIN) if plain else 0.0)


def work_seconds(
    tile: TimedTile, work: Work, target: Target, then: int | None = None, before: float = 0.0, beside: float = 0.0
) -> float:
    """What a kernel takes beside its launch.

    `then`: columns of a second product behind every tile, whose A operand is the tile, and which is stored instead.
    `before`: seconds in which the warpgroups of a tile transform the A operand of a step, before they multiply.
    `beside`: those that their other instructions of a step take, while its products are under way; activations of a
    store of the warpgroup in turn with them are in the way of these.
    """
    gpu = target.gpu
    assert gpu is not None
    speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
    steps = ceil(work.taps * ceil(work.depth / tile.k) / work.slices)
    blocks = tile.blocks(work.m, work.n) * work.slices
    rounds = ceil(blocks / gpu.sms)
    slow = (_SHALLOW if tile.k < 64 else 1.0) * (_WINDOWS if work.windowed else 1.0)
    products = steps * max(slow * max(tile.m * tile.n * tile.k / (_MULTIPLIES * speed), _STEP), beside)
    size = tile.m * (tile.n // work.sides if then is None else then) / (128 * 128)
    second = 0.0
    if then is not None:
        between = _BETWEEN + _BETWEEN_FUNCTION * work.between
        second = (tile.m * tile.n * then / _MULTIPLIES + between * tile.m * tile.n / (128 * 128)) / speed
    products += second + steps * before
    plain = _STORE_BEGINS + work.stores * _STORE * math.pow(size, _STORE_SIZE)
    plain += work.by_threads(tile.m, tile.n, tile.warpgroups)
    functions = _FUNCTION * work.functions * size / speed
    store = plain + functions
    together = rounds * (products * _shared(tile, work, then) + store + _residual(work, size))
    shared = functions if beside > 0.0 else 0.0
    compute = together if tile.cooperative else rounds * max(products + shared, second + store) + store
    if tile.pairs:
        products *= _TOGETHER * _PAIRS_MULTIPLY
        compute = rounds * max(products, _PAIRS_STORE * plain + functions) + store
    # Columns beyond the product's bring nothing under way.
    wanted = size if then is not None else tile.m * min(tile.n, work.n) / (128 * 128)
    memory = work.nbytes / (_MEMORY * target.bandwidth * math.pow(wanted, _IN_FLIGHT))
    # Blocks of a cluster share loads, which gains or loses up to a tenth: no rule was found for when it does which.
    traffic = blocks * steps * (tile.m + tile.n) * tile.k * 2 / (_L2_RATE * gpu.sms)
    slowest = max(compute, memory, traffic)
    others = _OVERLAP * (compute + memory + traffic - slowest)
    runs = _runs(tile, work) if work.windowed else 1.0
    more = _SINGLE if tile.single else 0.0
    if work.sides > 1 and (tile.pairs or not tile.cooperative):
        more += rounds * _GATE * tile.m * tile.n / (128 * 128) / speed
    runs *= _MANY_SUMS if tile.m * tile.n > REGISTERS * 128 * tile.warpgroups else 1.0
    usual = (max(slowest, _copies(tile, work, rounds * steps)) + others) * runs
    return more + max(usual, _from_smaller_l2(tile, blocks * steps, gpu))


def _shared(tile: TimedTile, work: Work, then: int | None) -> float:
    """How much longer products take warpgroups that share a tile."""
    if work.windowed or work.sides > 1 or then is not None:
        return _TOGETHER
    return _THREE_TOGETHER if tile.m % 128 else _PLAIN_TOGETHER


def _residual(work: Work, size: float) -> float:
    """Seconds that a store of a tile that warpgroups share waits for its residual."""
    return _RESIDUAL * size if work.residual and not work.windowed and work.slices == 1 else 0.0


def _from_smaller_l2(tile: TimedTile, steps: int, gpu: Gpu) -> float:
    """Seconds in which the factors of all blocks' steps come from an L2 that is smaller than an H200's. A cluster reads
    once what its blocks have in common."""
    down, across = tile.cluster
    read = steps * (tile.m / across + tile.n / down) * tile.k * 2
    return float(read / (_L2_RATE * gpu.sms * math.pow(min(1.0, gpu.l2 / _L2), _SMALLER_L2)))


def _runs(tile: TimedTile, work: Work) -> float:
    """How much longer windows take in all, for the runs of their channels."""
    longer = _TWO_RUNS if tile.k > 64 else 1.0
    if tile.k < 64 or work.taps == 1:
        return longer
    if work.depth % 64 == 0 and tile.n >= 128 and tile.m * tile.n >= _BROAD_TILE:
        longer *= _BROAD
    if work.depth % 64 and tile.m * tile.n >= _UNEVEN_TILE:
        longer *= _UNEVEN
    return longer * (_FEW if tile.n <= 64 and tile.m >= 192 else 1.0)


def _copies(tile: TimedTile, work: Work, steps: int) -> float:
    """Seconds in which TMA brings the rows of so many steps to the busiest SM."""
    pitch = 2 * work.depth
    row = _ROWS[math.gcd(pitch, 128)]
    apart = _FAR if work.windowed and work.stride > _FAR_STRIDE else 1.0
    return steps * (tile.m + tile.n) * max(1.0, tile.k / 64) * row * apart
