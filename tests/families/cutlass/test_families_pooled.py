"""A convolution and the pooling of its maxima in one kernel: which neighbours a thread has, and which problems suit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as every

import numpy as np
import pytest
from families_harness import Layer
from gpu_pairs import graph_of_both, pooling, steps_of
from gpu_products import RESIDUAL, SILU, conv
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_tiles import candidate_of, ranked
from pair_fakes import with_policy
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.pooled import Pooled, PooledTile, length, seconds
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import PREDICTED
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
SHAPES = {2: ((14, 8), (16, 8), (8, 8), (14, 16), (16, 16)), 3: ((16, 16), (14, 16), (8, 16), (4, 16))}
TILES = tuple(PooledTile(*shape, 4, pool) for pool, shapes in SHAPES.items() for shape in shapes)
STEM = PooledTile(16, 16, 4, 3)
_BEYOND = 1000
"""What windows beyond the image are taken to sum up: more than any position of it."""


class Strip:
    """What four neighbouring threads do, of one channel: the tiles of a strip one below the other."""

    def __init__(self, tile: PooledTile, image: Array, column: int) -> None:
        self.tile, self.image, self.column = tile, image, column
        self.above = np.full((tile.width // 8, 4, 2), -np.inf)

    def pool(self, row: int, *, below: bool) -> Array:
        """The staged pixels of the tile that begins at a row of the image: one row less of the first one `below`
        another strip."""
        tile, (height, width) = self.tile, self.image.shape
        eights, (pool_rows, pool_columns) = tile.width // 8, tile.extent
        sums = np.full((tile.rows, tile.width), float(_BEYOND))
        for y, x in np.ndindex(sums.shape):
            if row + y < height and 0 <= self.column + x < width:
                sums[y, x] = self.image[row + y, self.column + x]
        held = sums.reshape(tile.rows, eights, 4, 2)
        at_once = 4 if eights == 1 else 2
        staged_rows = -(-pool_rows // at_once) * at_once
        staged = np.full(tile.staged_bytes // 128, np.nan)
        for group in range(0, staged_rows, at_once):
            found = np.full((at_once, eights, 4), -np.inf)
            for each in range(min(at_once, pool_rows - group)):
                found[each] = self._row(row, group + each, held)
            for matrix, line in np.ndindex(2, 8):
                thread, second = line // 2, line % 2
                value = found[matrix * 2 + second, 0, thread] if eights == 1 else found[matrix, second, thread]
                down = group + (matrix * 2 + second if eights == 1 else matrix) - below
                across = thread + (0 if eights == 1 else second * 4)
                pixel = down * pool_columns + across
                if tile.overlaps and (across == pool_columns or pixel < 0):
                    pixel = staged_rows * pool_columns + across
                staged[pixel] = value
        stored = pool_rows - below
        return staged[: stored * pool_columns].reshape(stored, pool_columns)

    def _row(self, row: int, pooled: int, held: Array) -> Array:
        """[eights, threads] of a row of the pooling."""
        height, width = self.image.shape
        upper, lower = held[2 * pooled], held[2 * pooled + 1]
        upper = upper if row + 2 * pooled < height else np.full_like(upper, -np.inf)
        lower = lower if row + 2 * pooled + 1 < height else np.full_like(lower, -np.inf)
        columns = np.maximum(upper, lower)
        if self.tile.overlaps:
            columns = np.maximum(columns, self.above)
            self.above = lower
        for eight, thread, i in np.ndindex(columns.shape):
            if not 0 <= self.column + eight * 8 + thread * 2 + i < width:
                columns[eight, thread, i] = -np.inf
        found = columns.max(axis=2)
        if self.tile.overlaps:
            eights = columns.shape[0]
            for eight in range(eights):
                given_ = columns[eight, :, 0].copy()
                if eight + 1 < eights:
                    given_[0] = columns[eights - 1, 0, 0]
                found[eight] = np.maximum(found[eight], given_[[1, 2, 3, 0]])
        return found


def pooled_by_threads(tile: PooledTile, image: Array, shape: tuple[int, int], length: int) -> Array:
    """What the kernel leaves of [rows, columns]: strip by strip, what is beyond the pooled image cut off."""
    (rows, columns), found = tile.extent, np.full(shape, np.nan)
    across = -(-shape[1] // columns)
    down = tile.strips(1, shape, length) // across
    for right, part_of in every(range(across), range(down)):
        strip = Strip(tile, image, right * columns * 2 - tile.overlaps)
        for step in range(length):
            row = part_of * (length * rows - tile.overlaps) + step * rows
            below = tile.overlaps and step == 0 and part_of > 0
            part = strip.pool(2 * row, below=below)
            to = found[row + below : row + rows, right * columns : right * columns + columns]
            assert np.isnan(to).all(), "written once"
            to[...] = part[: to.shape[0], : to.shape[1]]
    return found


@settings(max_examples=60, deadline=None)
@given(
    tile=st.sampled_from(TILES), extent=st.tuples(st.integers(2, 50), st.integers(2, 50)), ceil=st.booleans(),
    behind=st.tuples(st.integers(0, 2), st.integers(0, 2)), length=st.integers(1, 4), seed=st.integers(0, 99),
)  # fmt: skip
def test_threads_find_the_maxima_of_their_neighbours(
    tile: PooledTile, extent: tuple[int, int], ceil: bool, behind: tuple[int, int], length: int, seed: int
) -> None:
    """However much padding is behind: the kernel knows only how many rows and columns come of it."""
    image = np.random.default_rng(seed).integers(-100, 100, extent).astype(np.float32)
    front, last = (tile.pool - 2,) * 2, (min(behind[0], tile.pool - 1), min(behind[1], tile.pool - 1))
    op = Pool("max", (tile.pool,) * 2, (2, 2), front, last, (1, 1), ceil)
    (wanted,) = op.evaluate([image[None, None]])
    found = pooled_by_threads(tile, image, wanted.shape[2:], length if tile.overlaps else 1)
    np.testing.assert_array_equal(found, wanted[0, 0])


@given(strips=st.integers(1, 40), blocks=st.integers(1, 9), length=st.integers(1, 4))
def test_turns_end_where_one_warpgroup_has_a_strip_less(strips: int, blocks: int, length: int) -> None:
    """Every sync has its arrival, and each warpgroup reads the boxes that were loaded for it."""
    for block in range(min(blocks, strips)):
        counts = [len(range(block + own * blocks, strips, 2 * blocks)) * length for own in (0, 1)]
        assert 0 <= counts[0] - counts[1] <= length
        loaded = [(own, tile) for tile in range(counts[0]) for own in (0, 1) if tile < counts[own]]
        arrived, synced = [0, 0], [0, 0]
        for own in (0, 1):
            other, box = counts[1 - own], own
            arrived[0] += own
            for tile in range(counts[own]):
                synced[own] += own == 1 or tile <= other
                assert loaded[box] == (own, tile)
                box += 1
                arrived[1 - own] += tile < other if own == 0 else tile + 1 < other
                box += own == 1 or tile < other
        assert arrived == synced or (counts[1] == 0 and arrived == [1, 0])


def problem(layer: Layer, planes: bool = False) -> KernelProblem:
    found = [step.problem for step in steps_of(layer)]
    return next(each for each in found if (each.inputs[0].format.dtype is DType.F32) is planes)


def stem(batch: int = 32) -> Layer:
    return pooling(conv("stem", (batch, 3, 224, 224), 64, (7, 7), 2), 3)


@pytest.mark.parametrize("planes", [False, True])
def test_a_stem_is_pooled_from_every_form_of_its_input(planes: bool) -> None:
    found, _ = ranked(problem(stem(), planes), H200)
    assert {tile for _, tile in found} == {PooledTile(*shape, 4, 3) for shape in SHAPES[3]}
    assert [time for time, _ in found] == sorted(time for time, _ in found)


def test_apart_it_is_what_others_pool() -> None:
    graph, first = graph_of_both(stem())
    offered = FAMILY.propose(graph, first, H200, DType.F16)[0]
    second = graph.nodes[1]
    alone = {each.steps[0].problem for each in Portable().propose(graph, second, H200, DType.F16)[0]}
    pairs = [each for each in offered if each.apart]
    assert pairs
    assert all(each.region == ("first", "second") for each in pairs)
    assert {each.apart[1] for each in pairs} <= alone
    assert {each.apart[0] for each in pairs} == {each.steps[0].problem for each in offered if not each.apart}


def test_the_kernel_in_words_and_in_cxx() -> None:
    wanted = problem(stem(2))
    candidate = replace(candidate_of(STEM), settings=(("strip", 2),))
    assert str(candidate) == "cutlass rows=16 width=16 steps=4 resident=turns pool=3 strip=2"
    assert str(STEM) == "16x16 positions pooled 3x3, weights of 64 channels in registers"
    (unit,) = FAMILY.units([(wanted, candidate)], H200)
    assert unit.text == (
        '#include "bolt_cutlass/units/conv_pooled_kernel.h"\n\n'
        "template void bolt::cutlass_kernels::launch_conv(\n"
        "    bolt::cutlass_kernels::PooledTile<16, 4, 4, 1, 16, 3>,\n"
        "    const bolt::cutlass_kernels::ConvArguments&, const bolt::cutlass_kernels::Pooling&,\n"
        "    const bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Relu>>&, void*);\n"
    )
    code = FAMILY.emit(wanted, candidate, H200, StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b")))
    assert code.includes == ("bolt_cutlass/plans/pooled.h",)
    assert code.call == "kernel.run(r, x, y);"
    assert code.member_type == (
        "bolt::cutlass_kernels::PooledConv<bolt::cutlass_kernels::PooledTile<16, 4, 4, 1, 16, 3>, "
        "bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Map<bolt::portable::Relu>>, "
        "bolt::cutlass_kernels::Folded<bolt::portable::f16>>"
    )
    assert code.member_arguments.endswith("bolt::cutlass_kernels::Pooling{.pool_h = 56, .pool_w = 56, .length = 2}")


@given(st.sampled_from(TILES))
def test_a_candidate_says_which_tile_it_is(tile: PooledTile) -> None:
    assert Pooled().tile_of(candidate_of(tile)) == tile


def test_first_layers_are_pooled_from_single_results() -> None:
    """Two results beside each other are one column of the product, but two of what is pooled."""
    thin = problem(pooling(conv("thin", (2, 3, 32, 32), 64, (3, 3)), 2))
    found, _ = ranked(thin, H200)
    assert {tile.steps for _, tile in found} == {2}
    (unit,) = FAMILY.units([(thin, candidate_of(found[0][1]))], H200)
    assert "PooledTile<8, 2, 3, 1, 8, 2>" in unit.text


def why_not(layer: Layer) -> list[str]:
    graph, first = graph_of_both(layer)
    offered, refusals = FAMILY.propose(graph, first, H200, DType.F16)
    assert not any(each.apart for each in offered)
    return [refusal.reason for refusal in refusals if refusal.what == "first, second"]


def pooled(layer: Layer, op: Pool) -> Layer:
    return pooling(layer, 2, op)


def test_why_problems_are_none() -> None:
    plain = conv("c", (2, 64, 28, 28), 64, (3, 3))
    takes = "takes pooling of 2x2, or of 3x3 with a padding of one, with a stride of two"
    assert why_not(pooled(plain, Pool("max", (2, 2), (1, 1), (0, 0), (0, 0), (1, 1)))) == [takes]
    assert why_not(pooled(plain, Pool("max", (3, 3), (2, 2), (0, 0), (0, 0), (1, 1)))) == [takes]
    assert why_not(pooled(plain, Pool("max", (2, 2), (2, 2), (0, 0), (0, 0), (2, 2)))) == [takes]
    joined = why_not(pooling(conv("c", (2, 64, 28, 28), 64, (1, 1)), 2))
    assert joined == ["takes pooling behind larger windows than 1x1"]
    deep = why_not(pooling(conv("c", (2, 128, 28, 28), 64, (3, 3)), 2))
    assert deep == ["holds weights of 64 channels at most in registers, here are 128"]
    after = replace(pooling(plain, 2), epilogue=SILU)
    assert why_not(after) == ["another function follows the pooling"]
    found, refusals = ranked(problem(stem()), A100)
    assert not found
    assert [each.reason for each in refusals] == ["needs WGMMA"]


def test_why_tiles_are_none() -> None:
    wanted = problem(pooling(conv("c", (2, 64, 224, 224), 64, (3, 3)), 2))
    found, refusals = ranked(wanted, H200)
    assert {(tile.rows, tile.width) for _, tile in found} == {(14, 8), (16, 8), (8, 8)}
    assert {each.what: each.reason for each in refusals} == {
        f"tile {rows}x16 positions pooled 2x2, weights of 64 channels in registers": (
            f"weights and accumulators take {144 + rows * 8} registers of a thread, which has 208"
        )
        for rows in (14, 16)
    }
    small = problem(pooling(conv("c", (2, 64, 8, 40), 64, (3, 3)), 2))
    reasons = {each.what: each.reason for each in ranked(small, H200)[1]}
    assert reasons["tile 16x8 positions pooled 2x2, weights of 64 channels in registers"] == (
        "half of its rows would be beyond the 4 of a pooled image"
    )


def test_a_convolution_that_another_tensor_joins_stays_apart() -> None:
    graph, first = graph_of_both(pooling(conv("c", (2, 64, 28, 28), 64, (3, 3)), 2))
    joined = replace(first, epilogue=RESIDUAL, inputs=(*first.inputs, first.inputs[0]))
    changed = replace(graph, nodes=(joined, graph.nodes[1]))
    offered, refusals = FAMILY.propose(changed, joined, H200, DType.F16)
    assert not any(each.apart for each in offered)
    assert [each.reason for each in refusals if each.what == "first, second"] == ["another tensor joins in between"]


def test_it_moves_what_is_pooled_alone() -> None:
    wanted = problem(pooling(conv("c", (32, 64, 224, 224), 64, (3, 3)), 2))
    first, _ = parts(wanted)
    found = FAMILY.expense(wanted)
    assert found.nbytes == first.inputs[0].nbytes + first.outputs[0].nbytes // 4 + 9 * 64 * 64 * 2 + 64 * 4
    assert found.flops == wanted.flops


def test_time_grows_with_the_strips_of_the_busiest_multiprocessor() -> None:
    def predicted(batch: int) -> float:
        what = Pooled().computed(problem(stem(batch)))
        return seconds(STEM, what, 0, H200, length(STEM, what, H200))

    times = [predicted(batch) for batch in (1, 8, 32, 33, 34, 128)]
    assert times == sorted(times)
    # Eight columns an image: 33 images are 264, two for each of 132 multiprocessors.
    assert times[2] == times[3] < times[4]


def test_strips_are_shorter_where_there_are_few() -> None:
    def chosen(batch: int) -> int:
        return length(STEM, Pooled().computed(problem(stem(batch))), H200)

    assert [chosen(batch) for batch in (1, 2, 8, 32, 128)] == [1, 1, 2, 7, 7]
    assert length(PooledTile(14, 8, 4, 2), Pooled().computed(problem(stem(1))), H200) == 1


NET = """
    graph g batch=32 (%x: f32[32,3,224,224]) -> (%z) {
      const %w: f32[64,3,7,7] #
      const %b: f32[64] #
      %y = conv(%x, %w, %b) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] | relu // "stem"
      %z = pool(%y) mode=max kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "pool"
    }"""


def planned(wish: str) -> tuple[list[str], list[str]]:
    """The steps of a plan, and what it says of products and poolings in one kernel."""
    engine = plan_engine([graph(NET)], with_policy(wish), TargetSpec("h200", "fp16"), H200, load(H200), PREDICTED)
    steps = [f"{step.name}: {describe_problem(step.problem)}" for step in engine.plan.plans[0].steps]
    steps = [step.replace(" dilations=[1,1]", "") for step in steps]
    return steps, [f"{d.subject}: {d.action}" for d in engine.plan.decisions if d.stage == "persistent"]


def test_a_plan_pools_where_the_stem_is_computed() -> None:
    back = "z@f32/row: convert(f16[32,64,56,56] channels_last) -> f32[32,64,56,56]"
    together = (
        "pool: conv(f32[32,3,224,224], f16[64,3,7,7], f32[64]) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] | relu | "
        "pool(_) mode=max kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] -> f16[32,64,56,56] channels_last"
    )
    assert planned("auto") == ([together, back], ["batch 32: pool: fused"])
    assert planned("always") == ([together, back], ["pool: fused"])
    apart = (
        "stem: conv(f32[32,3,224,224], f16[64,3,7,7], f32[64]) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] | relu -> "
        "f16[32,64,112,112] channels_last"
    )
    alone = (
        "pool: pool(f16[32,64,112,112] channels_last) mode=max kernel=[3,3] strides=[2,2] pads_begin=[1,1] "
        "pads_end=[1,1] -> f16[32,64,56,56] channels_last"
    )
    assert planned("never") == ([apart, alone, back], [])
