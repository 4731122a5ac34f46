"""Forms of the tensor-core kernels that no rule would choose for small layers: clusters, orders of tiles, slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Layer, graph_with
from gpu_asked import asked
from gpu_harness import TARGET, Trial

from bolt_build.families.base import Candidate
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.warps.warp import WarpTile
from bolt_build.families.cutlass.kinds.windows.resident import ResidentTile
from bolt_build.families.cutlass.one_product import Kernel, ProductTile
from bolt_build.families.cutlass.problems.products import product_of

FAMILY = Cutlass()


def turns(m: int, n: int, k: int, cluster: tuple[int, int] = (1, 1)) -> WgmmaTile:
    """A tile that one warpgroup computes while another stores."""
    return WgmmaTile(m, n, k, cooperative=False, cluster=cluster)


def together(m: int, n: int, k: int, cluster: tuple[int, int] = (1, 1)) -> WgmmaTile:
    """A tile that two warpgroups share, or three of 192 rows."""
    return WgmmaTile(m, n, k, cooperative=True, cluster=cluster)


def pairs(m: int, n: int, k: int) -> WgmmaTile:
    """A tile that two warpgroups share, while another two have the next."""
    return WgmmaTile(m, n, k, cooperative=True, pairs=True)


def single(m: int, n: int, k: int, cluster: tuple[int, int] = (1, 1)) -> WgmmaTile:
    """A tile of a block that leaves half of a multiprocessor to another."""
    return WgmmaTile(m, n, k, cooperative=False, cluster=cluster, single=True)


# All turns, every width of the store, one to four sub-tiles down, each kind of multicast, every step.
FORMS = (
    turns(64, 16, 32), turns(64, 96, 64), turns(128, 64, 128), turns(64, 64, 64, (2, 1)), turns(64, 32, 64, (1, 2)),
    turns(128, 32, 32, (2, 1)), together(128, 32, 64), together(256, 64, 64), together(128, 64, 64, (2, 1)),
    together(256, 32, 64, (1, 2)), pairs(128, 64, 64), pairs(256, 32, 32), pairs(128, 96, 64),
    together(192, 64, 64), together(192, 32, 64, (2, 1)), together(192, 96, 64, (1, 2)),
    single(64, 64, 64), single(64, 96, 64, (1, 2)), single(64, 32, 128), single(128, 64, 64),
)  # fmt: skip
WIDE_FORMS = (turns(64, 256, 64), together(128, 192, 64), together(256, 128, 64, (2, 1)), turns(128, 128, 64, (1, 2)),
              pairs(128, 128, 64), together(192, 192, 64), together(192, 160, 64, (2, 1)), together(192, 128, 64),
              turns(64, 160, 64), together(128, 160, 64, (1, 2)), turns(128, 192, 64, (2, 1)),
              turns(128, 160, 64))  # fmt: skip
SLICED = (
    turns(64, 64, 64), turns(128, 32, 64, (2, 1)), together(128, 64, 64), WarpTile(64, 64, 64, 32, 32, 5),
    together(192, 64, 64), WarpTile(128, 32, 64, 32, 32, 4), single(64, 64, 64), single(64, 128, 64, (1, 2)),
)  # fmt: skip


def resident(steps: int, *rows: int, both: bool = True) -> tuple[ResidentTile, ...]:
    """Tiles of so many rows each, whose weights stay in registers: in turns, and `both` ways."""
    return tuple(ResidentTile(r, steps, way) for r in rows for way in (False, True)[: 2 if both else 1])


def resident_wide(steps: int, *rows: int, both: bool = False) -> tuple[ResidentTile, ...]:
    """The same of 16 pixels a row."""
    return tuple(replace(tile, width=16) for tile in resident(steps, *rows, both=both))


def with_tiles(layer: Layer, tiles: Sequence[ProductTile]) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not."""
    return [trial for of in asked([layer]) for tile in tiles for trial in _trials(of, Kernel(tile))]


def in_slices(layer: Layer, tiles: Sequence[WgmmaTile | WarpTile]) -> list[Trial]:
    """The layer with each tile in every possible number of slices. Raises ValueError where there is none."""
    assert TARGET.gpu is not None
    found = []
    for tile in tiles if asked([layer]) else ():
        for trial in _trials(layer, Kernel(tile, partial=True)):
            counts = tile.counts(TARGET.gpu, product_of(trial.step.problem))
            if not counts:
                raise ValueError(f"the depth of {layer.label} has no slices for {tile}")
            found += [_with(trial, ("slices", count)) for count in counts]
    return found


def in_every_order(layer: Layer, tile: WgmmaTile) -> list[Trial]:
    """The layer with one tile in every order of tiles. Raises ValueError where there is but one order."""
    kernel = Kernel(tile)
    if not asked([layer]):
        return []
    found = []
    for trial in _trials(layer, kernel):
        variants = FAMILY.variants(trial.step.problem, kernel.candidate(), TARGET)
        found += [replace(trial, candidate=variant) for variant in variants]
    if not found:
        raise ValueError(f"{layer.label} has too few tiles of {tile} for orders of them")
    return found


def _trials(layer: Layer, kernel: Kernel[ProductTile]) -> list[Trial]:
    """Every sharing of memory."""
    graph, node = graph_with(layer)
    (step,) = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps
    shares = [None, *(pair[0] for pair in step.may_share)]
    return [Trial(layer, step, kernel.candidate(), shared) for shared in shares]


def _with(trial: Trial, setting: tuple[str, int]) -> Trial:
    return replace(trial, candidate=Candidate("cutlass", trial.candidate.parameters, (setting,)))
