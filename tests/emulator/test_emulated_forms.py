"""Kernels whose cut follows from extents agree with NumPy on the emulated GPU: elements along lines,
planes of nearest pixels, clusters that reduce an image, and softmax of whole groups of lines. Random shapes, axes,
types, tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import emulated
import pytest
from families_harness import Input, Layer
from gpu_folds import folded
from gpu_harness import TARGET, Library, Trial, trials_of
from gpu_products import TOLERANCE
from gpu_resample import resampled
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import Tile, candidate_of
from bolt_build.families.portable.kernels.lines.line_groups import GroupTile, least_loads
from bolt_build.families.portable.kernels.lines.staged import Lines
from bolt_build.families.portable.kernels.moves.flat_rows import RowTile
from bolt_build.families.portable.kernels.moves.gathered_lines import GatherTile
from bolt_build.families.portable.kernels.reductions.fold_clusters import ClusterTile
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import GatherElements

pytestmark = pytest.mark.large
COUNT = 24
FLOATS = (DType.F16, DType.F16, DType.BF16, DType.F32)
Drawn = tuple[Layer, str, Tile]


def _gathered(random: Random) -> Drawn:
    length, run, rows = random.randint(1, 900), random.randint(1, 400), random.randint(1, 9)
    taken = (random.randint(1, 3), random.randint(1, rows), run)
    data = Input((3, rows, length), dtype=random.choice((DType.F16, DType.F32, DType.U8, DType.I64)), low=0, high=90)
    named = Input(taken, low=0.6 - length, high=length - 0.6, dtype=random.choice((DType.I32, DType.I64)))
    tile = GatherTile(random.choice((32, 64, 128, 256)), random.randint(1, 16))
    return Layer("along", GatherElements(2), (data, named), (), DType.F16, TOLERANCE), "staged", tile


def _nearest(random: Random) -> Drawn:
    shape = (random.randint(1, 2), random.randint(1, 5), random.randint(1, 30), random.randint(1, 40))
    axes = random.choice(((2, 3), (2, 3), (2,), (3,)))
    tables = ((axis, random.randint(1, 60), 1) for axis in axes)
    layer = resampled("nearest", shape, *tables, precision=random.choice(FLOATS), even=random.random() < 0.5)
    return layer, "flat_rows", RowTile(random.choice((1, 2, 4, 8)), random.choice((1, 2, 4, 8)))


def _reduced(random: Random) -> Drawn:
    shape = (random.randint(1, 5), random.randint(300, 4000), random.randint(2, 99))
    op = random.choice((Reduce("mean", (1,), False), Reduce("max", (1,)), Places(1, 1), Places(1, 1, False, True)))
    layer = folded("pixels", op, *shape, dtype=random.choice(FLOATS))
    return layer, "clusters", ClusterTile(random.choice((256, 512)), random.choice((2, 4, 8)))


def _softmax(random: Random) -> Drawn:
    groups, count, inner = random.randint(1, 7), random.randint(1, 70), random.choice((2, 3, 5, 8, 16, 21, 30, 49, 52))
    op = random.choice((Softmax(2), Softmax(2), Line("log_softmax", 2)))
    shape = (*random.choice(((1, groups), (groups, 1))), count, inner)
    precision, threads = random.choice((DType.F16, DType.BF16)), random.choice(range(64, 257, 32))
    values = Input(shape, low=-8.0, high=8.0, dtype=precision)
    loads = least_loads(threads, Lines(groups, count, inner, 2, 2))
    tile = GroupTile(threads, max(loads, 1), random.choice((1, 2)), random.choice((1, 2)), random.randint(1, groups))
    return Layer("groups", op, (values,), (), precision, TOLERANCE), "groups", tile


def drawn(seed: int) -> Trial:
    """Of each form one in four. Of a draw that no kernel serves another one."""
    random, family = Random(seed), Portable()
    draw: Callable[[Random], Drawn] = (_gathered, _nearest, _reduced, _softmax)[seed % 4]
    while True:
        layer, algorithm, tile = draw(random)
        layer = replace(layer, label=f"drawn-{seed}-{layer.label}")
        layer = replace(layer, tolerance=2e-2 if layer.precision is DType.BF16 else max(layer.tolerance, TOLERANCE))
        candidate = candidate_of("portable", algorithm, tile)
        for trial in trials_of(layer, "portable"):
            if family.refuse(trial.step.problem, candidate, TARGET) is None:
                return replace(trial, candidate=candidate)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("emulated-forms", lambda: [drawn(seed) for seed in range(COUNT)], shared_folder)


@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int) -> None:
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0
