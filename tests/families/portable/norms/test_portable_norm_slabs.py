"""How a GPU's normalisations are cut in slabs: what a slab is of, that each element is in one, and what is refused."""

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
from pair_fakes import with_policy
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norms.norm_loops import STATISTICS, loops_of
from bolt_build.families.portable.kernels.norms.norm_nest import Nest, nest_of
from bolt_build.families.portable.kernels.norms.norm_slabs import FORM, SlabTile, refuse_tile, tiles
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.report.plan import render
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
DIRECT = Candidate("portable", (("algorithm", "direct"),))
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


def of_channels(*shape: int, groups: int = 0, target: str = "h200", dtype: DType = DType.F16) -> KernelProblem:
    """The normalisation of each channel, or of groups of them; with a scale and bias of each channel."""
    op = Norm("variance", (1, 2, 3) if groups else (2, 3), 1e-5, max(groups, 1))
    return problem(shape, op, target=target, dtype=dtype, scale=(shape[1], 1, 1))


def offered(asked: KernelProblem) -> list[Candidate]:
    return list(FAMILY.candidates(asked, target_named(asked.target))[0])


def in_slabs(asked: KernelProblem) -> tuple[Nest, SlabTile]:
    """The fastest by prediction."""
    nest = nest_of(loops_of(asked))
    assert isinstance(nest, Nest)
    return nest, FORM.tile_of(next(each for each in offered(asked) if "algorithm=slabs" in str(each)))


def shared(asked: KernelProblem) -> int:
    nest, tile = in_slabs(asked)
    return tile.shared(nest, asked.inputs[0].format.dtype.nbytes)


def test_a_cluster_reads_whole_lines_of_an_image() -> None:
    """64 channels are 128 bytes of a pixel. No block has room for 56 x 56 of them."""
    asked = of_channels(256, 64, 56, 56)
    nest, tile = in_slabs(asked)
    assert tile.across == 8
    assert tile.cluster * tile.share(nest) >= 56 * 56
    assert tile.cluster > 1
    assert 2 * shared(asked) <= 227 << 10, "something is loaded while something is computed"


def test_whole_groups_make_a_slab() -> None:
    """Groups of 10 channels and loads of 8: the least that has both whole are 40 channels."""
    nest, tile = in_slabs(of_channels(16, 320, 64, 64, groups=32))
    assert (nest.group, tile.across % 5) == (10, 0)
    assert nest.channels == Loop(320, (1, 1, 1, 0))


def test_gpus_without_clusters_keep_as_much_as_one_block_has_room_for() -> None:
    """All of 14 x 14 positions, and a part of 64 x 64 or 128 x 128, whose other elements are read twice."""
    nest, tile = in_slabs(of_channels(256, 64, 14, 14, target="t4"))
    assert (tile.cluster, tile.chunk(nest)) == (1, 196)
    for groups, shape in ((32, (16, 320, 64, 64)), (0, (32, 128, 128, 128))):
        nest, tile = in_slabs(of_channels(*shape, groups=groups, target="a100"))
        assert (tile.cluster, tile.share(nest)) == (1, shape[2] * shape[3])
        assert tile.chunk(nest) < tile.share(nest)
        assert tile.across * 16 >= 64, "whole sectors of memory are read"


def test_what_lies_side_by_side_and_has_one_statistic_is_cut_anywhere() -> None:
    nest, _ = in_slabs(problem((4, 3, 56, 56), Norm("variance", INSTANCE, 1e-5), Layout.ROW, scale=(3, 1, 1)))
    assert (nest.group, nest.channels.extent, prod(loop.extent for loop in nest.positions)) == (64, 64, 49)


def test_channels_of_images_with_one_statistic_are_a_slab() -> None:
    """Scale and bias are the channels' own: so a thread has the same everywhere. Without them it is cut as above."""
    nest, tile = in_slabs(problem((32, 128, 28, 28), Norm("variance", (1, 2, 3), 1e-5), scale=(128, 1, 1)))
    assert (nest.group, nest.channels.extent, nest.many, nest.operands) == (128, 128, 784, "fixed")
    assert tile.across == 16
    bare, _ = in_slabs(problem((32, 128, 28, 28), Norm("variance", (1, 2, 3), 1e-5)))
    wide, _ = in_slabs(problem((32, 1024, 7, 7), Norm("variance", (1, 2, 3), 1e-5), scale=(1024, 1, 1)))
    assert (bare.group, wide.group) == (64, 64)


def test_a_single_image_with_one_statistic_is_cut_as_many_are() -> None:
    op = Norm("variance", (1, 2, 3), 1e-5)
    one, many = (in_slabs(problem((images, 64, 56, 56), op, scale=(64, 1, 1)))[0] for images in (1, 32))
    assert (one.group, one.channels.extent, one.many, one.operands) == (64, 64, 3136, "fixed")
    assert (many.group, many.channels.extent, many.many, many.operands) == (64, 64, 3136, "fixed")


def test_rows_in_registers_and_hosts_have_none() -> None:
    rows = Norm("variance", (2,), 1e-5)
    assert all("slabs" not in str(each) for each in offered(problem((2, 5, 72), rows, Layout.ROW, scale=(72,))))
    assert offered(of_channels(2, 64, 8, 8, target="host", dtype=DType.F32)) == [DIRECT]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (of_channels(2, 20, 9, 11), "slabs: 20 channels are no multiple of the 8 that a thread loads at once"),
        (
            of_channels(2, 12, 9, 11, groups=2),
            "slabs: 12 channels are no multiple of the 8 that a thread loads at once",
        ),
        (
            problem((2, 8, 145, 147), Norm("variance", INSTANCE, 1e-5), Layout.ROW),
            "slabs: 21315 elements side by side have one statistic, no multiple of the 8 that a thread loads at once",
        ),
        (
            problem((2, 3, 3, 12), Norm("variance", (0, 1, 3), 1e-5), Layout.ROW),
            "slabs: 36 channels are no multiple of the 8 that a thread loads at once",
        ),
    ],
    ids=["channels", "groups", "planes", "lines"],
)
def test_what_is_no_whole_loads_is_no_slabs_but_images(asked: KernelProblem, reason: str) -> None:
    found, refusals = FAMILY.candidates(asked, H200)
    known = {"staged", "registers", "held", "ahead"}
    assert {str(each.parameters[0][1]) for each in found} - known == {"direct", "images", "gathered"}
    assert ("norm", reason) in [(each.what, each.reason) for each in refusals]
    assert FAMILY.refuse(asked, slabs_candidate(SlabTile(1, 1, 1, 128)), H200) == reason


def slabs_candidate(tile: SlabTile) -> Candidate:
    return Candidate("portable", (("algorithm", "slabs"), *tile.parameters), tile.settings)


ANY = "there are kernels of 1, 2, 4 or 8 blocks, and of 128, 256 or 512 threads"


@pytest.mark.parametrize(
    ("tile", "target", "reason"),
    [
        (SlabTile(10, 8, 1, 256), "h200", None),
        (SlabTile(10, 3, 1, 256), "h200", ANY),
        (SlabTile(10, 1, 1, 96), "h200", ANY),
        (SlabTile(15, 8, 1, 256), "h200", "320 channels are no whole slabs of 120"),
        (SlabTile(8, 8, 1, 256), "h200", "a slab of 64 channels has no whole groups of 10"),
        (SlabTile(10, 2, 16, 256), "a100", "blocks form clusters from sm_90 on"),
        (SlabTile(10, 8, 513, 256), "h200", "512 positions are fewer than the 513 parts of a block's share"),
        (SlabTile(10, 4, 1, 256), "h200", None),
        (SlabTile(10, 1, 1, 256), "h200", "takes 663488 bytes of shared memory, a block has 232448"),
        (SlabTile(10, 1, 10, 256), "t4", "takes 73728 bytes of shared memory, a block has 65536"),
    ],
    ids=str,
)  # fmt: skip
def test_a_slab_that_is_not_legal_has_a_reason(tile: SlabTile, target: str, reason: str | None) -> None:
    """32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    asked = of_channels(32, 320, 64, 64, groups=32, target=target)
    assert FAMILY.refuse(asked, slabs_candidate(tile), target_named(target)) == reason


def test_few_positions_and_wide_slabs_are_refused_too() -> None:
    few = of_channels(200, 2048, 1, 3)
    assert (
        FAMILY.refuse(few, slabs_candidate(SlabTile(8, 4, 1, 128)), H200)
        == "3 positions are fewer than the 4 blocks of a cluster"
    )
    assert (
        FAMILY.refuse(few, slabs_candidate(SlabTile(256, 1, 1, 128)), H200)
        == "128 threads are fewer than the 256 loads of a position"
    )


def test_a_candidate_states_all_that_emission_takes() -> None:
    asked = of_channels(256, 64, 56, 56)
    best = next(each for each in offered(asked) if "algorithm=slabs" in str(each))
    assert [name for name, _ in best.parameters] == ["algorithm"]
    at = StepExpressions(("x", "scale", "bias"), ("y",), (None, "scale", "bias"))
    without = replace(best, settings=best.settings[1:])
    reason = f"{without} states not all that its kernel takes, or something else"
    assert FAMILY.refuse(asked, without, H200) == reason
    with pytest.raises(ValueError, match=f"^{reason}$"):
        FAMILY.emit(asked, without, H200, at)
    call = FAMILY.emit(asked, slabs_candidate(SlabTile(4, 8, 1, 256)), H200, at).call
    assert "norm_in_slabs<true, bolt::portable::NormOperands::fixed, " in call
    slab = ".across = 4, .cluster = 8, .share = 392, .chunk = 392, .group = 1, .threads = 256"
    assert slab in call


def test_one_compiled_kernel_serves_all_slabs() -> None:
    asked = of_channels(256, 64, 56, 56)
    (kernel,) = (each for each in offered(asked) if "algorithm=slabs" in str(each))
    variants = FAMILY.variants(asked, kernel, H200)
    assert len(variants) > 8
    assert {each.parameters for each in variants} == {kernel.parameters}
    times = [FAMILY.predict(asked, each, H200) for each in (kernel, *variants)]
    assert times == sorted(times)
    assert all(FAMILY.refuse(asked, each, H200) is None for each in variants)


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
    asked = problem(shape, op, layout, target, dtype, scale)
    nest = nest_of(loops_of(asked))
    if not isinstance(nest, Nest) or loops_of(asked).in_registers[0]:
        assert [each for each in offered(asked) if "slabs" in str(each)] == []
        return
    gpu = target_named(target).gpu
    assert gpu is not None
    many = len(places(nest.positions))
    legal = [tile for tile in tiles(nest, dtype.nbytes, gpu) if refuse_tile(tile, nest, dtype.nbytes, gpu) is None]
    for tile in legal:
        assert tile.shared(nest, dtype.nbytes) <= gpu.shared_memory
        assert (nest.channels.extent % tile.width, tile.width % nest.group) == (0, 0)
        assert (tile.cluster - 1) * tile.share(nest) < many + tile.cluster
        assert tile.cluster * tile.share(nest) >= many
        assert tile.chunks * tile.chunk(nest) >= tile.share(nest)

    # The number of the statistic of each element, in the order of memory.
    ids = np.zeros(shape, dtype=np.int64)
    split = ids.reshape(shape[0], groups, shape[1] // groups, *shape[2:])
    kept = [axis + (axis > 0) for axis in range(4) if axis not in axes] + ([1] if groups > 1 else [])
    numbers = np.arange(prod(split.shape[axis] for axis in kept))
    split += numbers.reshape([extent if axis in kept else 1 for axis, extent in enumerate(split.shape)])
    memory = (ids if layout is Layout.ROW else np.moveaxis(ids, 1, -1)).reshape(-1)

    seen, positions = np.zeros(memory.size, dtype=np.int64), places(nest.positions)
    for start in places(nest.kept):
        for first in range(0, nest.channels.extent, nest.group):
            every = (start + first + positions[:, None] + np.arange(nest.group)).reshape(-1)
            seen[every] += 1
            assert len(set(memory[every])) == 1
            assert every.size == np.count_nonzero(memory == memory[every[0]])
    assert (seen == 1).all()


def test_a_plan_names_the_kernel_and_says_why_others_are_none() -> None:
    net = graph("""
        graph g batch=32 (%x: f32[32,64,56,56], %o: f32[32,20,9,11]) -> (%y, %z) {
          const %s: f32[64,1,1] #
          %y = norm(%x, %s, %s) statistic=variance axes=[2,3] epsilon=1e-5 // "whole"
          %z = norm(%o) statistic=variance axes=[2,3] epsilon=1e-5 // "odd"
        }""")
    recipe, spec = with_policy("auto"), TargetSpec("h200", "fp16")
    text = render(plan_engine([net], recipe, spec, H200, load(H200)).plan)
    assert " across=" in next(line for line in text.splitlines() if " whole " in line)
    assert "portable algorithm=direct" in next(line for line in text.splitlines() if " odd " in line)
    why = "portable: odd: slabs: 20 channels are no multiple of the 8 that a thread loads at once"
    assert f"  {why}" in text.splitlines()
