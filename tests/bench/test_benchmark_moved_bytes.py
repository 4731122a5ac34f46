"""Bytes that steps move at least: sectors of which something is read, counted beside all elements one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from families_harness import Input, Layer, graph_with
from gpu_resample import resampled
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kernels.moved_bytes import SECTOR, moved_bytes, sectors
from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.targets import target_named


def problem_of(layer: Layer, layout: Layout = Layout.ROW) -> KernelProblem:
    graph, node = graph_with(layer)
    found = [each.steps[0].problem for each in Portable().propose(graph, node, target_named("h200"), DType.F16)[0]]
    return next(each for each in found if each.outputs[0].format.layout is layout)


@given(st.data())
def test_sectors_are_those_of_some_element(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    some = [st.none() | st.sets(st.integers(0, extent - 1), min_size=1) for extent in shape]
    chosen = data.draw(st.tuples(*some))
    nbytes = data.draw(st.sampled_from([1, 2, 4, 8, 48]))
    places = [None if each is None else np.array(sorted(each)) for each in chosen]
    touched = set()
    each_axis = zip(shape, chosen, strict=True)
    for at in product(*(range(extent) if each is None else sorted(each) for extent, each in each_axis)):
        begin = nbytes * int(np.ravel_multi_index(at, shape))
        touched |= set(range(begin // SECTOR, (begin + nbytes - 1) // SECTOR + 1))
    assert sectors(shape, places, nbytes) == len(touched)


def layer_of(op: Op, *inputs: Input) -> Layer:
    return Layer("one", op, inputs, (), DType.F16)


@pytest.mark.parametrize(
    ("op", "inputs", "read"),
    [
        # Every second element leaves no sector out, every second row leaves out all of its own.
        (Slice((0, 1), (8, 32), (1, 2)), ((8, 64),), 8 * 64 * 2),
        (Slice((1, 0), (4, 64), (2, 1)), ((8, 64),), 4 * 64 * 2),
        (Slice((0, 0), (8, 2), (1, 64)), ((8, 128),), 8 * 2 * SECTOR),
        # Whole rows, and single elements of a row, at most all there are.
        (Gather(0), ((100, 64), (7,)), 7 * 64 * 2),
        (Gather(1), ((8, 1024), (5,)), 8 * 5 * SECTOR),
        (Gather(1), ((8, 64), (30,)), 8 * 64 * 2),
    ],
)
def test_what_is_read_of_slices_and_what_indices_name(op: Op, inputs: tuple[tuple[int, ...], ...], read: int) -> None:
    data, *indices = inputs
    layer = layer_of(op, Input(data), *(Input(each, dtype=DType.I64, high=5) for each in indices))
    problem = problem_of(layer)
    beside = sum(each.nbytes for each in (*problem.inputs[1:], *problem.outputs))
    assert moved_bytes(problem) == read + beside


def test_of_nearest_pixels_sectors_count_where_pixels_are_left_out_and_rows_do_not() -> None:
    """Planes of 114 x 114 halves of which every second row is read: rows of 228 bytes are four or five sectors."""
    planes = problem_of(resampled("half", (2, 64, 114, 114), (2, 57, 1), (3, 57, 1)))
    beside = sum(each.nbytes for each in (*planes.inputs[1:], *planes.outputs))
    assert 2 * 64 * 57 * 228 < moved_bytes(planes) - beside < 2 * 64 * 57 * 5 * SECTOR
    # Of pixels of 64 channels those that are left out are sectors of their own.
    pixels = problem_of(resampled("half", (2, 64, 114, 114), (2, 57, 1), (3, 57, 1)), Layout.CHANNELS_LAST)
    assert moved_bytes(pixels) - beside == 2 * 64 * 57 * 57 * 2
    # Interpolation to half the size reads all.
    linear = problem_of(resampled("half", (2, 64, 114, 114), (2, 57, 2), (3, 57, 2)))
    assert moved_bytes(linear) == linear.nbytes
