"""Images of any number of channels as runs of memory: what a GPU keeps of them, that each load is one thread's, and
what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with
from families_layers import norm
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import Tile
from bolt_build.families.portable.kernels.norms import norm_gathered, norm_images, norm_paired
from bolt_build.families.portable.kernels.norms.norm_gathered import GatherTile
from bolt_build.families.portable.kernels.norms.norm_images import Images, ImageTile, images_of
from bolt_build.families.portable.kernels.norms.norm_paired import PairTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import target_named

FAMILY, H100, A100 = Portable(), target_named("h100"), target_named("a100")
FORMS = {ImageTile: "images", GatherTile: "gathered", PairTile: "paired"}


def problem(layer: Layer, target: str = "h100", layout: Layout = Layout.CHANNELS_LAST) -> KernelProblem:
    graph, node = graph_with(replace(layer, precision=DType.F16))
    found = FAMILY.propose(graph, node, target_named(target), DType.F16)[0]
    of = (each.steps[0].problem for each in found)
    return next(each for each in of if each.inputs[0].format.layout is layout)


def of_groups(*shape: int, groups: int, target: str = "h100") -> KernelProblem:
    """With a scale and a bias of each channel."""
    op = Norm("variance", (1, 2, 3) if groups < shape[1] else (2, 3), 1e-5, groups if groups < shape[1] else 1)
    return problem(norm("n", op, shape, (shape[1], 1, 1)), target)


def first(asked: KernelProblem, *algorithms: str) -> dict[str, int | str]:
    """Of those of these algorithms."""
    found = (dict(each.parameters) for each in FAMILY.candidates(asked, target_named(asked.target))[0])
    return next(each for each in found if each["algorithm"] in algorithms)


def candidate(tile: Tile) -> Candidate:
    return Candidate("portable", (("algorithm", FORMS[type(tile)]), *tile.parameters))


def test_a_cluster_keeps_images_of_odd_channels() -> None:
    """33 channels of 112 x 112 pixels are 828 KB in fp16, of which each of eight blocks keeps an eighth; two such
    blocks have room on a multiprocessor."""
    asked = of_groups(32, 33, 112, 112, groups=3)
    assert first(asked, "images") == {"algorithm": "images", "cluster": 8, "threads": 256, "kept": 6468}
    images = images_of(asked)
    assert images == Images((Loop(32, (413952, 0, 0, 0)),), 12544, Loop(33, (1, 1, 1, 0)), 11)
    assert (images.period, images.statistics) == (33, 3)
    assert 2 * ImageTile(8, 256, 6468).shared(images, 2) < 227 << 10
    assert first(of_groups(32, 90, 56, 56, groups=9), "images")["cluster"] > 1


def test_gpus_without_clusters_gather_parts_first() -> None:
    for shape, groups in (((32, 33, 112, 112), 3), ((32, 90, 56, 56), 9)):
        asked = of_groups(*shape, groups=groups, target="a100")
        assert first(asked, "images", "gathered", "direct")["algorithm"] == "gathered"


def test_large_images_may_be_gathered_whatever_their_channels() -> None:
    """No cluster holds 64 channels of 512 x 512 pixels: narrow slabs, or parts that are read twice."""
    large = FAMILY.candidates(of_groups(4, 64, 512, 512, groups=8), H100)[0]
    assert any("algorithm=gathered" in str(each) for each in large)
    small = FAMILY.candidates(of_groups(32, 64, 56, 56, groups=8), H100)[0]
    assert not any("algorithm=gathered" in str(each) for each in small)


def test_parts_of_large_images_are_joined_once() -> None:
    """Of 391 parts of each of 32 statistics each block that normalises would read 150 KB."""
    header = (Portable().include_dir / "bolt_portable" / "cuda" / "norms" / "image_sums.h").read_text()
    assert f"many = Shape::parts * statistics > {norm_gathered.MOST_JOINED};" in header


def test_rows_of_odd_extents_may_have_a_scale_for_each_element() -> None:
    """107217 elements of an image are a row, which no line in shared memory is as long as."""
    op = Norm("variance", (1, 2, 3), 1e-5)
    row = problem(norm("n", op, (128, 33, 57, 57), (33, 57, 57)), layout=Layout.ROW)
    images = images_of(row)
    assert images is not None
    assert (images.plane, images.length, images.statistics) == (1, 107217, 1)
    assert call(row, ImageTile(2, 256, 6702)) == (
        None,
        "",
        "norm_in_images<bolt::portable::ImageShape<1, 1, 1, 107217, 2, 6702, 0, 256>",
    )
    told = {str(each.reason) for each in FAMILY.candidates(row, H100)[1]}
    assert {"held: each element of a row has a scale", "ahead: each element of a row has a scale"} <= told


def test_each_channel_by_itself_and_all_together_are_images_too() -> None:
    each = images_of(of_groups(32, 21, 57, 57, groups=21))
    assert each is not None
    assert (each.group, each.statistics, each.many) == (1, 21, 3249)
    together = images_of(problem(norm("n", Norm("variance", (1, 2, 3), 1e-5), (4, 12, 9, 9), (12, 1, 1))))
    assert together is not None
    assert (together.group, together.statistics) == (12, 1)


def test_planes_of_odd_extents_need_no_other_layout() -> None:
    """Groups of 32 planes of 57 x 57 elements are runs of memory too, in which each plane has its own scale."""
    groups = norm("n", Norm("variance", (1, 2, 3), 1e-5, 3), (32, 96, 57, 57), (96, 1, 1))
    asked = problem(groups, layout=Layout.ROW)
    images = images_of(asked)
    kept = (Loop(32, (311904, 0, 0, 0)), Loop(3, (103968, 32, 32, 0)))
    assert images == Images(kept, 32, Loop(32, (3249, 1, 1, 0)), 1, 3249)
    assert (images.period, images.statistics) == (1, 1)
    assert first(asked, "images")["cluster"] in (1, 2, 4, 8)
    shape = "bolt::portable::ImageShape<1, 1, 3249, 103968"
    assert call(asked, ImageTile(2, 256, 6498)) == (None, "", f"norm_in_images<{shape}, 2, 6498, 0, 256>")
    lines = norm("n", Norm("variance", (2, 3), 1e-5), (32, 21, 257, 257), (21, 1, 1))
    of_lines = images_of(problem(lines, layout=Layout.ROW))
    assert of_lines is not None
    assert (of_lines.images, of_lines.many, of_lines.plane, of_lines.length) == (672, 1, 66049, 66049)


def test_channels_that_are_whole_loads_have_the_kernels_that_they_had() -> None:
    candidates, refusals = FAMILY.candidates(of_groups(32, 96, 57, 57, groups=3), H100)
    stated = [dict(each.parameters)["algorithm"] for each in candidates]
    assert not {"images", "gathered"} & set(stated)
    assert not any(str(each.reason).startswith(("images", "gathered")) for each in refusals)


def call(asked: KernelProblem, tile: Tile) -> tuple[str | None, str, str]:
    """What a plan holds of it, and the function and its first template arguments."""
    assert FAMILY.refuse(asked, candidate(tile), H100) is None
    inputs = tuple(f"x{index}" for index in range(len(asked.inputs)))
    code = FAMILY.emit(asked, candidate(tile), H100, StepExpressions(inputs, ("y",), inputs))
    return code.member_type, code.member_arguments, code.call.removeprefix("bolt::portable::").split(", bolt::p")[0]


def test_the_compiler_knows_images_and_how_they_are_cut() -> None:
    asked = of_groups(32, 33, 112, 112, groups=3)
    shape = "bolt::portable::ImageShape<33, 11, 0, 413952"
    assert call(asked, ImageTile(8, 256, 6468)) == (None, "", f"norm_in_images<{shape}, 8, 6468, 0, 256>")
    assert call(asked, ImageTile(4, 256, 12936)) == (None, "", f"norm_in_images<{shape}, 4, 12936, 0, 256>")
    # 231 of 256 threads have loads: shares of nine for each, of which nothing is kept.
    member, scratch, function = call(asked, GatherTile(25, 256))
    assert (member, function) == ("bolt::portable::PassedNorm", f"norm_in_two<{shape}, 25, 2079, 2079, 256>")
    bytes_of, *constants = scratch.split(", bolt")
    assert int(bytes_of) == 32 * 25 * 3 * 12
    assert constants == [f'::portable::PassedConstant{{x{i}, "x{i}", 132}}' for i in (1, 2)], "its plan keeps them"


def test_kernels_beside_each_other_have_the_same_shares() -> None:
    """Each of 64 blocks has 2048 loads of an image, and keeps 32 KB; statistics of four blocks are put together."""
    asked = of_groups(2, 128, 128, 64, groups=32)
    shape = "bolt::portable::ImageShape<128, 4, 0, 1048576"
    member, scratch, function = call(asked, PairTile(64, 4, 256, 2048))
    assert (member, function) == ("bolt::portable::PassedNorm", f"norm_in_two<{shape}, 64, 2048, 0, 256, 4, true>")
    assert int(scratch.split(", bolt")[0]) == 2 * 16 * 32 * 12
    assert call(asked, PairTile(64, 1, 512, 1536))[2] == f"norm_in_two<{shape}, 64, 2048, 512, 512, 1, true>"


def test_only_kernels_of_large_images_are_beside_each_other_from_hopper_on() -> None:
    def offered(asked: KernelProblem) -> bool:
        found = FAMILY.candidates(asked, target_named(asked.target))[0]
        return any(dict(each.parameters)["algorithm"] == "paired" for each in found)

    assert offered(of_groups(1, 128, 64, 64, groups=32))
    assert not offered(of_groups(1, 128, 32, 32, groups=32))
    ampere = of_groups(1, 128, 64, 64, groups=32, target="a100")
    assert not offered(ampere)
    told = {str(each.reason) for each in FAMILY.candidates(ampere, A100)[1]}
    assert "paired: a kernel begins beside the one in front of it from sm_90 on" in told


REFUSED_PAIRS = [
    (PairTile(64, 3, 256, 2048), "there are kernels of 256 or 512 threads, in clusters of 1, 2, 4 or 8 blocks"),
    (PairTile(64, 4, 1024, 2048), "there are kernels of 256 or 512 threads, in clusters of 1, 2, 4 or 8 blocks"),
    (PairTile(66, 4, 256, 2048), "66 blocks of an image are no whole clusters of 4"),
    (PairTile(80, 4, 256, 1792), "131072 loads are not the shares of 80 blocks"),
    (PairTile(64, 4, 256, 2047), "of 2048 loads of a block not 2047 are kept, where its threads have 256 at once"),
    (PairTile(4, 4, 256, 32768), "takes 533248 bytes of shared memory, a block has 232448"),
]


@pytest.mark.parametrize(("tile", "reason"), REFUSED_PAIRS)
def test_pairs_that_no_kernels_are(tile: Tile, reason: str) -> None:
    assert FAMILY.refuse(of_groups(2, 128, 128, 64, groups=32), candidate(tile), H100) == reason


REFUSED: list[tuple[Tile, str]] = [
    (ImageTile(3, 256, 6468), "there are kernels of 1, 2, 4 or 8 blocks, and of 256, 512 or 1024 threads"),
    (ImageTile(8, 256, 6467), "of 6468 loads of a block not 6467 are kept, where its threads have 231 at once"),
    (ImageTile(1, 256, 51744), "takes 835368 bytes of shared memory, a block has 232448"),
    (GatherTile(25, 128), "there are kernels of 256, 512 or 1024 threads"),
    (GatherTile(24, 256), "51744 loads are not cut in 24 parts of as many for each thread"),
]


@pytest.mark.parametrize(("tile", "reason"), REFUSED)
def test_tiles_that_no_kernel_has(tile: Tile, reason: str) -> None:
    assert FAMILY.refuse(of_groups(32, 33, 112, 112, groups=3), candidate(tile), H100) == reason


def test_images_that_no_kernel_has() -> None:
    wide = of_groups(2, 1031, 9, 9, groups=1031)
    why = "channels repeat after 1031 loads, a block has 1024 threads at most"
    told = {str(each.reason) for each in FAMILY.candidates(wide, H100)[1]}
    assert {f"images: {why}", f"gathered: {why}"} <= told
    ninety = of_groups(32, 90, 56, 56, groups=9, target="a100")
    clusters = FAMILY.refuse(ninety, candidate(ImageTile(8, 256, 4410)), A100)
    assert clusters == "blocks form clusters from sm_90 on"
    few = FAMILY.refuse(of_groups(4, 33, 4, 4, groups=3), candidate(ImageTile(4, 256, 33)), H100)
    assert few == "66 loads are not the shares of 4 blocks"


def test_planes_that_are_shorter_than_a_load_are_refused() -> None:
    groups = norm("n", Norm("variance", (1, 2, 3), 1e-5, 3), (32, 96, 2, 3), (96, 1, 1))
    told = {str(each.reason) for each in FAMILY.candidates(problem(groups, layout=Layout.ROW), H100)[1]}
    why = "planes of 6 elements are shorter than the 8 of a load"
    assert {f"images: {why}", f"gathered: {why}"} <= told


def test_scales_of_pixels_are_not_those_of_channels() -> None:
    both = (Input((2, 33, 8, 8)), Input((33, 8, 8), True), Input((33, 8, 8), True))
    assert images_of(problem(Layer("n", Norm("variance", (1, 2, 3), 1e-5, 3), both))) is None


@given(st.integers(1, 700), st.integers(1, 12), st.integers(1, 40), st.integers(1, 5000))
@settings(max_examples=200, deadline=None)
def test_blocks_have_all_loads_and_begin_with_the_same_channels(each: int, groups: int, images: int, many: int) -> None:
    channels = min(each * groups, 1024)
    group = each if each * groups <= 1024 else channels
    of = Images((Loop(images, (channels * many, 0, 0, 0)),), many, Loop(channels, (1, 1, 1, 0)), group)
    gpu = H100.gpu
    assert gpu is not None
    kept = [tile for tile in norm_images.tiles(of, 2, gpu) if norm_images.refuse_tile(tile, of, 2, gpu) is None]
    for tile in kept:
        assert tile.share(of) * tile.cluster >= of.loads
        assert tile.share(of) * 8 % channels == 0
        assert of.active(tile.threads) % of.period == 0
    cut = [tile for tile in norm_gathered.tiles(of, 2, gpu) if norm_gathered.refuse_tile(tile, of, gpu) is None]
    for part in cut:
        assert part.share(of) * part.parts >= of.loads
        assert part.share(of) * 8 % channels == 0
    for pair in norm_paired.tiles(of, 2, gpu):
        assert norm_paired.refuse_tile(pair, of, 2, gpu) is None
        assert pair.share(of) * pair.blocks >= of.loads
        assert pair.share(of) * 8 % channels == 0
    assert of.period > 1024 or channels % group or (kept and cut)
