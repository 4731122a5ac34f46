"""Convolutions on Hopper: the positions of a tile and what windows reach beyond come to shared memory once for all
taps, or for those that are a multiple of the stride apart, and a tap is where the A operand begins in them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from itertools import product as every
from math import ceil, gcd
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE, NARROW, too_many_sums
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import (
    BARRIERS,
    LEAST_STAGES,
    SCHEDULES,
    SUMS,
    refuse_product,
    sharing,
    stages,
    store_bytes,
)
from bolt_build.families.cutlass.kinds.whole import WholeTile
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.settings import DEFAULT, Settings
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_STAGES = {"tap": "tap", "row": "row", "window": "window"}
"""Whose filters are a stage of the pipeline: of one tap, of a row of them, or of all."""
_MOST_POSITIONS = 1024
"""Of a band, which is one box of TMA."""
_PATTERN = 1024
"""Bytes after which TMA's swizzle repeats itself."""
_MOST_STAGES = 16
_FILLED = 0.55
"""Part of the last waves that tiles fill at least."""
_STILL = 0.55
"""Part of the numbered positions that are some of the output, at least."""
_SCHEDULES = {name: who for name, who in SCHEDULES.items() if name != "single"}
_SUMS = {2: ("two", 128), **SUMS}
_CLUSTERS = {"1x1": 1, "2x1": 2}


@dataclass(frozen=True)
class Numbering:
    """Positions a row and an image, as `BandShape` numbers them, and how far windows reach from one of them."""

    pitch_w: int
    pitch_h: int
    reach: int
    positions: int

    @property
    def image(self) -> int:
        """Positions of an image, with those between its rows and behind it."""
        return self.pitch_w * self.pitch_h

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, product: Product) -> Numbering:
        """Every tile asks."""
        shape = dict(product.shape)
        stride, pitches, reaches = product.step, [], []
        for along, extent in (("w", "width"), ("h", "height")):
            out, pad = shape[f"out_{along}"], shape[f"pad_{along}"]
            reach = (shape[f"kernel_{along}"] - 1) * shape[f"dilation_{along}"]
            behind = (stride * (out - 1) - pad + reach) // stride + 1
            pitches.append(max(ceil((shape[extent] + pad) / stride), behind, out))
            reaches.append(reach // stride)
        width, height = pitches
        beyond = (height - shape["out_h"]) * width + width - shape["out_w"]
        return cls(width, height, reaches[1] * width + reaches[0], shape["batch"] * width * height - beyond)


@dataclass(frozen=True)
class BandTile(WholeTile):
    """`m` positions by `n` outputs, and runs of `k` channels; who computes them is as in `WgmmaTile`. `cluster` blocks
    along m share the filters that they load.

    Of `bands` in shared memory others are loaded while one is multiplied. A `stage` has the filters of a tap, of a row
    of taps or of all: products of few columns wait less often for many of them. Filters of small groups have rows of
    `width` channels, others (0) of k.
    """

    m: int
    n: int
    k: int
    cooperative: bool
    teams: int
    cluster: int = 1
    bands: int = 2
    stage: str = "tap"
    width: int = 0

    header: ClassVar[str] = "_band"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    reads_images: ClassVar[bool] = True
    loads: ClassVar[int] = 8

    @property
    def warpgroups(self) -> int:
        """That compute a tile together."""
        return sharing(self.m, self.cooperative)

    @property
    def accumulators(self) -> int:
        """Registers of a thread that hold sums."""
        return self.m * self.n // (128 * self.warpgroups)

    @property
    def schedule(self) -> str:
        """`pingpong`, `cooperative` or `pairs`."""
        return next(name for name, who in _SCHEDULES.items() if who == (self.cooperative, self.teams))

    @property
    def group(self) -> str:
        return "bands of WGMMA"

    @property
    def parameters(self) -> Named:
        names = {count: name for name, count in _CLUSTERS.items()}
        cluster = (("cluster", names[self.cluster]),) if self.cluster > 1 else ()
        stage = (("stage", self.stage),) if self.stage != "tap" else ()
        sizes = (("m", self.m), ("n", self.n), ("k", self.k), ("warpgroups", self.schedule))
        return (*sizes, *cluster, ("bands", self.bands), *stage)

    @classmethod
    def read(cls, reader: Reader) -> BandTile:
        m, n, k = map(reader.number, ("m", "n", "k"))
        together, teams = reader.word("warpgroups", _SCHEDULES)
        cluster = reader.word("cluster", _CLUSTERS, "1x1")
        bands, stage = reader.number("bands"), reader.word("stage", _STAGES, "tap")
        return cls(m, n, k, together, teams, cluster, bands, stage)

    def rows(self, product: Product) -> int:
        """Positions of a band, in whole patterns of the swizzle."""
        return aligned(self.m + Numbering.of(product).reach, _PATTERN // (2 * self.k))

    def band_bytes(self, product: Product) -> int:
        return self.rows(product) * self.k * 2

    def together(self, product: Product) -> int:
        """Taps of a stage."""
        shape = dict(product.shape)
        row = shape["kernel_w"] if shape["kernel_w"] > 1 else shape["kernel_h"]
        return {"tap": 1, "row": row, "window": product.taps}[self.stage]

    @property
    def _filter(self) -> int:
        """Bytes of the filters of one tap."""
        return self.n * (self.width or self.k) * 2

    def stages(self, gpu: Gpu, product: Product) -> int:
        """Of filters, that shared memory has room for beside the bands and the output."""
        stage, taken = self.together(product) * self._filter, self.bands * self.band_bytes(product)
        store = store_bytes(self.n, self.warpgroups, product.residual, stage, taken, teams=self.teams)
        return min(stages(gpu.shared_memory, stage, taken + store), _MOST_STAGES)

    def blocks(self, product: Product) -> int:
        """Tiles, in whole clusters."""
        down = ceil(Numbering.of(product).positions / self.m)
        return aligned(down, self.cluster) * ceil(product.n / self.n)

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::BandTile<256, 64, 64, true, 1, 1, 376, 2, 4, 3, 3, 1, 64, 1>`"""
        shape, last = dict(product.shape), (product.depth - 1) % self.k // 16 + 1
        tile = (self.m, self.n, self.k, boolean(self.cooperative), self.teams, self.cluster)
        window = (shape["kernel_h"], shape["kernel_w"], product.step)
        filters = (self.width or self.k, self.together(product))
        values = (*tile, self.rows(product), self.bands, last, *window, *filters)
        return f"{SPACE}::BandTile<{', '.join(map(str, values))}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := refuse_product(gpu, product)) is not None:
            return reason
        shape = dict(product.shape)
        if product.kernel != "Conv" or product.taps == 1:
            return "is for windows of several taps"
        if min(shape["kernel_h"], shape["kernel_w"], shape["stride_h"], shape["stride_w"]) < product.step:
            return Reason("its windows leave out elements, or have a stride of {} along one axis alone", product.step)
        if product.step > 1 and max(shape["dilation_h"], shape["dilation_w"]) > 1:
            return "its windows are strided and dilated"
        numbering = Numbering.of(product)
        real = shape["batch"] * shape["out_h"] * shape["out_w"]
        if real < _STILL * numbering.positions:
            return Reason("of {} numbered positions {} are outputs", numbering.positions, real)
        return self._refuse_size(product, numbering) or self._refuse_room(gpu, product)

    def _refuse_size(self, product: Product, numbering: Numbering) -> str | None:
        if self.n > 2 * max(product.n, NARROW):
            return Reason("over half of its columns would be beyond the {} of the product", product.n)
        if self.n <= NARROW and product.n > 2 * self.n:
            return Reason("a narrow tile reads the rows again for every {} of {} columns", self.n, product.n)
        if self.k >= 2 * product.depth:
            return Reason("half of its depth would be beyond the {} of the product", product.depth)
        if self.k < 64 and product.depth > self.k:
            return Reason("runs of {} channels are for as many at most, here are {}", self.k, product.depth)
        if self.m >= 2 * max(numbering.positions, 64):
            return Reason("over half of its rows would be beyond {} positions", numbering.positions)
        if self.stage != "tap" and (product.step > 1 or self.together(product) == 1):
            return "a stage of several taps is of one band"
        if self.stage == "window" and self.together(product) == replace(self, stage="row").together(product):
            return "a row of its taps is all of them"
        if self.rows(product) > _MOST_POSITIONS:
            return Reason("a band of {} positions is beyond TMA's {}", self.rows(product), _MOST_POSITIONS)
        return None

    def _refuse_room(self, gpu: Gpu, product: Product) -> str | None:
        if (reason := too_many_sums(self.accumulators)) is not None:
            return reason
        word, most = _SUMS[self.warpgroups * self.teams]
        if self.accumulators > most:
            return Reason(
                f"a thread would hold {{}} sums, {word} warpgroups leave room for {{}}", self.accumulators, most
            )
        found = self.stages(gpu, product)
        if found < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of filters, {} are needed", found, LEAST_STAGES)
        return None

    def refuse_whole(self, gpu: Gpu, product: Product) -> str | None:
        blocks = self.blocks(product)
        waves = ceil(blocks / gpu.sms)
        if waves > 1 and blocks < _FILLED * waves * gpu.sms:
            return Reason(
                "{} tiles fill little more than half of {} waves over {} multiprocessors", blocks, waves, gpu.sms
            )
        if blocks < self.cluster:
            return Reason("there are fewer tiles than in a cluster: {}", blocks)
        return None

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "its taps share a band, which slices of the depth would load again"

    def usual(self, product: Product, gpu: Gpu) -> Settings:
        """The kernel's own."""
        return DEFAULT

    def orders(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        """The other direction, where there is more than one wave and more than one row and column of tiles."""
        down, across = ceil(Numbering.of(product).positions / self.m), ceil(product.n / self.n)
        if min(down, across) < 2 or down * across <= gpu.sms:
            return ()
        return (Settings(along="n" if across > down else "m"),)

    def allowed(self, product: Product, gpu: Gpu) -> tuple[Settings, ...]:
        return (self.usual(product, gpu), *self.orders(product, gpu))

    def seconds(self, product: Product, work: Work, target: Target) -> float:
        """The tiles of the busiest multiprocessor, or what L2 or memory brings."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        blocks = self.blocks(product)
        rounds, runs = ceil(blocks / gpu.sms), ceil(product.depth / self.k)
        sixteens = product.taps * ceil(product.depth / 16)
        steps = product.taps * runs
        columns = self.width or self.n
        multiplied = sixteens * self.m * columns * 16 / (_MULTIPLIES * speed)
        loaded = runs * product.step**2 * self.band_bytes(product) + steps * self._filter
        read = sixteens * self.m // 64 * (64 + columns) * 32
        waits = steps / self.together(product) * _STEP
        products = max(multiplied, (read + loaded) / (_SHARED * speed)) + waits
        size = self.m * self.n / (128 * 128)
        store = _STORE_BEGINS + (work.stores * _STORE + _FUNCTION * work.functions / speed) * size
        store += work.by_threads(self.m, self.n, self.warpgroups)
        if self.teams == 1:
            compute = rounds * (products + store)
        else:
            compute = rounds * max(products, store) + store
        memory = work.nbytes / (_MEMORY * target.bandwidth)
        traffic = blocks * loaded / (_L2_RATE * gpu.sms)
        slowest = max(compute, memory, traffic)
        # TMA brings a band position by position, however few channels each has.
        copied = rounds * runs * product.step**2 * self.rows(product) * _POSITION[gcd(2 * product.depth, 128)]
        return _LAUNCH + max(slowest + _OVERLAP * (compute + memory + traffic - slowest), copied)

    def __str__(self) -> str:
        cluster = "" if self.cluster == 1 else f" in clusters of {self.cluster}x1"
        stage = "" if self.stage == "tap" else f", stages of a {self.stage}"
        return f"{self.m}x{self.n}x{self.k} {self.schedule} of {self.bands} bands{cluster}{stage}"


# Fitted to 36 kernels on an H100, off by 7%, over 1.1: what kernels of all kinds took in the same run over what is
# predicted of them. Products in a second of one SM, bytes that it reads and writes in its shared memory; seconds of a
# stage, of a store, of that of 128 x 128 results, for each instruction that activations take of them, and of a launch;
# bytes in a second from memory, in parts of what the row states, and of one SM from L2.
_MULTIPLIES, _SHARED = 4.1e12, 2.6e11
_STEP, _STORE_BEGINS, _STORE, _FUNCTION, _LAUNCH = 1.0e-8, 1.0e-8, 1.06e-6, 0.91e-7, 2.39e-6
_MEMORY, _L2_RATE, _OVERLAP = 1.01, 7.18e10, 0.277

_POSITION = dict.fromkeys((128, 64, 32), 4.8e-9) | dict.fromkeys((16, 8, 4, 2), 8.1e-9)
"""Seconds in which TMA brings a position of a band, by the bytes of which the distance between positions is a multiple.
Of 16 to 32 channels it is what an H100 waits for: fitted to seven kernels there, off by 25% at most but for one."""

_SHAPES = {
    "pingpong": (
        (128, 128), (128, 96), (128, 64), (64, 128), (64, 192), (64, 64), (64, 96), (64, 256), (128, 32),
    ),
    "cooperative": (
        (256, 64), (256, 96), (256, 128), (128, 128), (128, 192), (128, 256), (192, 64), (192, 96), (192, 128),
        (192, 192), (256, 32), (128, 160),
    ),
    "pairs": ((256, 64), (128, 128), (128, 96), (128, 64), (256, 32)),
}  # fmt: skip
_CHANNELS_OF_FEW = 128
"""Columns at most of tiles whose runs have fewer than 64 channels."""
_FORMS = {
    "pingpong": ((1, 2, "tap"), (1, 2, "row"), (1, 3, "tap")),
    "cooperative": ((1, 2, "tap"), (2, 2, "tap")),
    "pairs": ((1, 2, "tap"), (1, 2, "row"), (1, 3, "tap"), (1, 3, "row"), (1, 2, "window")),
}
"""Blocks of a cluster, bands, and what a stage has."""
BAND_TILES = tuple(
    BandTile(m, n, k, *_SCHEDULES[schedule], cluster, bands, stage)
    for k, schedule in every((64, 32, 16), _SCHEDULES)
    for cluster, bands, stage in _FORMS[schedule]
    for m, n in _SHAPES[schedule]
    if (k == 64 or (cluster == 1 and n <= _CHANNELS_OF_FEW)) and (stage == "tap" or n <= _CHANNELS_OF_FEW)
)
assert BARRIERS == 2048, "conv_band_kernel.h keeps as much"
