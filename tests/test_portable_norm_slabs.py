"""How a GPU's normalisations are cut in slabs: what a slab is of, that each element is in one, and what fits none."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from families_harness import graph_with
from families_layers import norm
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norm import STATISTICS, slabs_of
from bolt_build.families.portable.kernels.norm_slabs import Slabs
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norm import Norm
from bolt_build.targets import target_named

FAMILY = Portable()
INSTANCE = (2, 3)


def problem(
    shape: tuple[int, ...],
    op: Norm,
    layout: Layout = Layout.CHANNELS_LAST,
    target: str = "h200",
    dtype: DType = DType.F16,
    scale: tuple[int, ...] | None = None,
) -> KernelProblem:
    layer = replace(norm("n", op, shape, scale), precision=dtype)
    graph, node = graph_with(layer)
    found = FAMILY.propose(graph, node, target_named(target), dtype)[0]
    return next(each.steps[0].problem for each in found if each.steps[0].problem.inputs[0].format.layout is layout)


def of_channels(*shape: int, groups: int = 0, target: str = "h200", dtype: DType = DType.F16) -> Slabs | None:
    """Of the normalisation of each channel, or of groups of them; with a scale and bias of each channel."""
    op = Norm("variance", (1, 2, 3) if groups else (2, 3), 1e-5, max(groups, 1))
    return slabs_of(problem(shape, op, target=target, dtype=dtype, scale=(shape[1], 1, 1)))


def test_a_cluster_reads_whole_lines_of_an_image() -> None:
    """64 channels are 128 bytes of a pixel. No block has room for 56 x 56 of them."""
    found = of_channels(256, 64, 56, 56)
    assert found is not None
    assert found.across == 8
    assert found.cluster * found.share >= 56 * 56
    assert found.cluster > 1
    assert found.clusters or 2 * found.bytes <= 227 << 10, "something is loaded while something is computed"


def test_whole_groups_make_a_slab() -> None:
    """Groups of 10 channels and loads of 8: the least that has both whole are 40 channels."""
    found = of_channels(16, 320, 64, 64, groups=32)
    assert found is not None
    assert (found.group, found.across % 5) == (10, 0)
    assert found.channels == Loop(320, (1, 1, 1, 0))


def test_gpus_without_clusters_keep_as_much_as_one_block_has_room_for() -> None:
    """All of 14 x 14 positions, and a part of 64 x 64 or 128 x 128, whose other elements are read twice."""
    found = of_channels(256, 64, 14, 14, target="t4")
    assert found is not None
    assert (found.cluster, found.chunk) == (1, 196)
    for groups, shape in ((32, (16, 320, 64, 64)), (0, (32, 128, 128, 128))):
        found = of_channels(*shape, groups=groups, target="a100")
        assert found is not None
        assert (found.cluster, found.share) == (1, shape[2] * shape[3])
        assert found.chunk < found.share
        assert found.across * 16 >= 64, "whole sectors of memory are read"


def test_what_lies_side_by_side_and_has_one_statistic_is_cut_anywhere() -> None:
    found = slabs_of(problem((4, 3, 56, 56), Norm("variance", INSTANCE, 1e-5), Layout.ROW, scale=(3, 1, 1)))
    assert found is not None
    assert (found.group, found.channels.extent, prod(loop.extent for loop in found.positions)) == (64, 64, 49)


@pytest.mark.parametrize("shape", [(2, 20, 9, 11), (2, 3, 40, 44)])
def test_channels_that_are_no_whole_loads_are_in_none(shape: tuple[int, ...]) -> None:
    assert of_channels(*shape) is None


def test_rows_in_registers_and_hosts_have_none() -> None:
    rows = Norm("variance", (2,), 1e-5)
    assert slabs_of(problem((2, 5, 72), rows, Layout.ROW, scale=(72,))) is None
    assert of_channels(2, 64, 8, 8, target="host", dtype=DType.F32) is None


def places(loops: tuple[Loop, ...]) -> np.ndarray:
    """Where in the input the elements of a nest lie."""
    found = [sum(i * loop.steps[0] for i, loop in zip(at, loops, strict=True))
             for at in product(*(range(loop.extent) for loop in loops))]  # fmt: skip
    return np.array(found, dtype=np.int64)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_each_element_is_in_one_slab_with_all_of_its_statistic(data: st.DataObject) -> None:
    """Slabs are walked as the kernel does; each finds what NumPy says is normalised together."""
    groups = data.draw(st.sampled_from((1, 2, 3)))
    shape = (
        data.draw(st.integers(1, 3)),
        groups * data.draw(st.integers(1, 24)),
        data.draw(st.integers(1, 6)),
        data.draw(st.integers(1, 9)),
    )
    axes = (1, 2, 3) if groups > 1 else data.draw(st.sampled_from(((2, 3), (1, 2, 3), (0, 2, 3), (1,), (3,))))
    dtype = data.draw(st.sampled_from((DType.F16, DType.F32)))
    target = data.draw(st.sampled_from(("h200", "a100", "t4")))
    layout = data.draw(st.sampled_from((Layout.ROW, Layout.CHANNELS_LAST)))
    scale = data.draw(st.sampled_from((None, (shape[1], 1, 1))))
    op = Norm(data.draw(st.sampled_from(tuple(STATISTICS))), axes, 1e-5, groups)
    found = slabs_of(problem(shape, op, layout, target, dtype, scale))
    if found is None:
        return
    gpu = target_named(target).gpu
    assert gpu is not None
    assert found.bytes <= gpu.shared_memory
    assert found.cluster == 1 or gpu.warpgroup_mma
    own = found.across * 8
    assert (found.channels.extent % own, own % found.group, found.threads % 32) == (0, 0, 0)
    assert found.threads >= found.across
    positions = places(found.positions)
    assert (found.cluster - 1) * found.share < len(positions) + found.cluster
    assert found.cluster * found.share >= len(positions)
    assert 1 <= found.chunk <= found.share
    assert found.clusters == 0 or found.chunk == found.share

    # The number of the statistic of each element, in the order of memory.
    ids = np.zeros(shape, dtype=np.int64)
    split = ids.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    kept = [axis + (axis > 0) for axis in range(4) if axis not in axes] + ([1] if groups > 1 else [])
    numbers = np.arange(prod(split.shape[axis] for axis in kept))
    split += numbers.reshape([extent if axis in kept else 1 for axis, extent in enumerate(split.shape)])
    memory = (ids if layout is Layout.ROW else np.moveaxis(ids, 1, -1)).reshape(-1)

    seen = np.zeros(memory.size, dtype=np.int64)
    for start in places(found.kept):
        for first in range(0, found.channels.extent, found.group):
            every = (start + first + positions[:, None] + np.arange(found.group)).reshape(-1)
            seen[every] += 1
            assert len(set(memory[every])) == 1
            assert every.size == np.count_nonzero(memory == memory[every[0]])
    assert (seen == 1).all()
