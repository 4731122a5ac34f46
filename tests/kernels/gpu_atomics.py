"""Scatters whose updates atomic instructions join, whichever comes first: in shared memory and in memory."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_scatters import claimed, scattered

from bolt_build.dtypes import DType
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_atomics import AtomicColumnsTile, AtomicRunsTile
from bolt_build.families.portable.kernels.scatter.scatter_memory_atomics import AtomicTile
from bolt_build.families.portable.kernels.scatter.scatter_parts import ColumnPartsTile, RunPartsTile


def _beyond(layer: Layer) -> Layer:
    """With elements that are minus infinity, and updates that are infinity: some sums are no number."""
    data, indices, updates = layer.inputs
    return replace(layer, inputs=(replace(data, hidden=9), indices, replace(updates, low=7e4, high=8e4)))


def _below(layer: Layer) -> Layer:
    """With some updates that are minus infinity."""
    data, indices, updates = layer.inputs
    return replace(layer, inputs=(data, indices, replace(updates, hidden=2)))


_LAYERS = (
    (
        scattered("atomic-added", 1, (2, 13, 40), 300, "add"),
        (("columns", 32, 512), ("columns", 8, 256), ("columns", 16, 1024), ("runs", 1, 512)),
    ),
    (
        _beyond(scattered("atomic-no-numbers", 1, (2, 70, 36), 45, "add")),
        (("columns", 16, 256), ("runs", 2, 256), ("elements",)),
    ),
    (
        _below(scattered("atomic-less", 1, (7, 50, 21), 45, "add")),
        (("columns", 16, 256), ("runs", 2, 256), ("elements",)),
    ),
    (scattered("atomic-many-added", 0, (9, 21), 2100, "add"), (("columns", 16, 256), ("runs", 1, 512), ("elements",))),
    (scattered("atomic-greatest", 1, (3, 50, 7), 140, "max"), (("columns", 8, 256), ("runs", 2, 256), ("elements",))),
    (scattered("atomic-least", 1, (37, 91), 70, "min", DType.BF16), (("runs", 5, 256), ("elements",))),
    (
        scattered("atomic-summed", 1, (3, 9, 33), 77, "add", DType.I32),
        (("columns", 32, 512), ("runs", 3, 256), ("elements",)),
    ),
    (
        scattered("atomic-bytes", 1, (2, 40, 24), 70, "max", DType.U8),
        (("columns", 32, 512), ("runs", 1, 512), ("elements",)),
    ),
    (scattered("atomic-wide", 1, (5, 77), 60, "min", DType.F32), (("runs", 2, 256),)),
    (scattered("atomic-last", 1, (2, 19, 36), 90), (("columns", 32, 512), ("columns", 8, 256), ("runs", 2, 256))),
    (scattered("atomic-last-odd", 1, (3, 40, 7), 33, dtype=DType.I64), (("columns", 8, 256), ("runs", 1, 512))),
    (scattered("atomic-last-rows", 1, (37, 91), 130, dtype=DType.U8), (("runs", 5, 256),)),
    (
        scattered("atomic-parts", 1, (2, 70, 36), 300, "add"),
        (("column_parts", 16, 256, 24), ("column_parts", 8, 512, 40), ("column_parts", 32, 256, 64)),
    ),
    (
        _beyond(scattered("atomic-parts-none", 1, (2, 70, 36), 45, "add")),
        (("column_parts", 8, 256, 32),),
    ),
    (scattered("atomic-parts-greatest", 1, (3, 50, 7), 140, "max"), (("column_parts", 8, 256, 16),)),
    (scattered("atomic-parts-last", 1, (2, 40, 36), 90), (("column_parts", 8, 256, 32), ("column_parts", 32, 512, 24))),
    (scattered("atomic-run-parts", 1, (3, 333), 500, "add"), (("run_parts", 256, 88), ("run_parts", 512, 200))),
    (_beyond(scattered("atomic-run-parts-none", 1, (3, 333), 50, "add")), (("run_parts", 256, 88),)),
    (scattered("atomic-run-parts-last", 2, (2, 3, 501), 130), (("run_parts", 256, 128), ("run_parts", 256, 304))),
    (scattered("atomic-run-parts-bytes", 1, (5, 203), 90, dtype=DType.U8), (("run_parts", 256, 40),)),
    (scattered("atomic-run-parts-least", 1, (3, 203), 90, "min", DType.BF16), (("run_parts", 512, 104),)),
    (claimed("atomic-rows", (40, 24), 1, 190, "add"), (("slices",),)),
    (_below(claimed("atomic-pairs", (5, 6, 3, 5), 2, 37, "add")), (("slices",),)),
    (scattered("atomic-numbers", 1, (3, 9, 7), 77, "add", DType.I64), (("elements",),)),
    (scattered("atomic-least-numbers", 1, (3, 9, 7), 30, "min", DType.I64), (("elements",),)),
    (claimed("atomic-elements", (7, 9), 2, 50, "max", DType.F32), (("slices",),)),
)
"""All that order does not matter to, with many updates of one place, and with infinities and what is no number."""
_TILES = {
    "columns": AtomicColumnsTile, "runs": AtomicRunsTile, "elements": AtomicTile, "slices": AtomicTile,
    "column_parts": ColumnPartsTile, "run_parts": RunPartsTile,
}  # fmt: skip


def atomic_trials() -> list[Trial]:
    found = []
    for layer, stated in (each for each in _LAYERS if asked((each[0],))):
        tiles = [candidate_of("portable", f"atomic_{name}", _TILES[name](*sizes)) for name, *sizes in stated]
        for trial in trials_of(layer, "portable"):
            for tile in tiles:
                if (reason := PORTABLE.refuse(trial.step.problem, tile, TARGET)) is not None:
                    raise ValueError(f"{layer.label}: {reason}")
                found.append(replace(trial, candidate=tile))
    return found
