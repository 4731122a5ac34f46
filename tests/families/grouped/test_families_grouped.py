"""Grouped and depthwise convolutions on GPUs: what the family takes, what its candidates state, what it emits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with
from families_layers import CLIP, RELU, stage
from gpu_products import conv, matmul
from grouped_tiles import BANDED, DEPTHWISE, DIAGONAL, GROUPED, LINE, PRODUCTS, ROWS, SEVENS, SLIDING, TILE
from proposed import one_problem, refusals

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds.depthwise import DepthwiseTile
from bolt_build.families.grouped.kinds.diagonal import DiagonalTile
from bolt_build.families.grouped.kinds.rows import RowsTile
from bolt_build.families.grouped.kinds.sliding import SlidingTile
from bolt_build.families.grouped.kinds.tensor_core import TensorCoreTile
from bolt_build.families.grouped.registry import KINDS, kinds_for
from bolt_build.families.grouped.shape import shape_of
from bolt_build.targets import HOST, Target, target_named

FAMILY = Grouped()
H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")


AnyTile = DepthwiseTile | RowsTile | DiagonalTile | TensorCoreTile | SlidingTile

SCALED = (RELU, stage("mul", 3), stage("add", 4), CLIP)


def problem_of(layer: Layer, target: Target = H200) -> KernelProblem:
    return one_problem(FAMILY, layer, target)


def refusals_of(layer: Layer, target: Target = H200) -> set[str]:
    return refusals(FAMILY, layer, target)


def legality(tile: AnyTile, layer: Layer, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(shape_of(problem_of(layer)), target.gpu)


def is_direct(candidate: Candidate) -> bool:
    return dict(candidate.parameters).get("algorithm") == "direct"


@pytest.mark.parametrize("target", [T4, A100, H200], ids=lambda target: target.name)
@pytest.mark.parametrize("layer", [DEPTHWISE, GROUPED], ids=lambda layer: layer.label)
def test_is_predicted_to_beat_the_portable_kernels(layer: Layer, target: Target) -> None:
    graph, node = graph_with(layer)
    families = {family.name: family for family in load(target)}
    own = [a.seconds for a in families["grouped"].propose(graph, node, target, DType.F16)[0]]
    others = [a.seconds for a in families["portable"].propose(graph, node, target, DType.F16)[0]]
    assert max(own) < min(others)
    direct = next(each for each in families["portable"].candidates(problem_of(layer), target)[0] if is_direct(each))
    assert max(own) < families["portable"].predict(problem_of(layer), direct, target) / 5


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (conv("dense", (2, 16, 8, 8), 16, (3, 3)), "is for convolutions with groups"),
        (matmul("product", (7, 64), 32, True, ()), "is for convolutions with groups"),
        (
            conv("volume", (1, 8, 5, 6, 7), 16, (3, 3, 3), groups=8),
            "convolves over three axes where each channel has one filter, of its own",
        ),
        (replace(DEPTHWISE, precision=DType.F32), "takes tensors in f16 or bf16, not in f32"),
        (
            replace(DEPTHWISE, inputs=(DEPTHWISE.inputs[0], Input((96, 1, 3, 3)), DEPTHWISE.inputs[2])),
            "weights and bias must be constants, to be packed when the engine loads",
        ),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)  # fmt: skip
def test_says_why_it_does_not_take_a_layer(layer: Layer, why: str) -> None:
    assert refusals_of(layer) == {why}


def test_takes_nothing_of_a_cpu() -> None:
    assert refusals_of(DEPTHWISE, HOST) == {"target 'host' has no tensor cores"}


def test_a_halo_that_no_block_has_room_for_is_refused() -> None:
    layer = conv("far", (1, 16, 90, 90), 16, (41, 41), 2, groups=16, dilation=2)
    reasons = refusals_of(layer, T4)
    assert any(reason.endswith("bytes of shared memory, a block has 65536") for reason in reasons)


@pytest.mark.parametrize(
    ("tile", "layer", "target", "why"),
    [
        (TILE, DEPTHWISE, H200, None),
        (replace(TILE, lanes=2), DEPTHWISE, H200, "blocks have 64 to 512 threads, not 32"),
        (
            replace(TILE, vector=8, lanes=2, rows=4),
            conv("thrice", (1, 16, 28, 28), 48, (3, 3), groups=16),
            H200,
            "16 results are no whole groups of 3",
        ),
        (
            TILE,
            conv("window", (1, 96, 28, 28), 96, (7, 7), groups=96),
            H200,
            "weights would take 196 registers of a thread, at most 64 are kept there",
        ),
        (
            replace(TILE, vector=4),
            conv("fives", (1, 96, 28, 28), 96, (5, 5), groups=96),
            H200,
            None,
        ),
        (
            replace(TILE, vector=4, each=8, lanes=24),
            conv("fives", (1, 96, 28, 28), 96, (5, 5), groups=96),
            H200,
            None,
        ),
        (
            replace(TILE, rows=16, columns=16, each=8),
            conv("small", (1, 96, 7, 7), 96, (3, 3), groups=96),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (
            replace(TILE, lanes=24, rows=8, columns=8),
            conv("many", (1, 192, 56, 56), 192, (3, 3), 2, groups=192),
            T4,
            "takes 221952 bytes of shared memory, a block has 65536",
        ),
        (ROWS, DEPTHWISE, H200, None),
        (replace(ROWS, lanes=96), DEPTHWISE, H200, "blocks have 64 to 512 threads, not 672"),
        (
            replace(ROWS, lanes=48, each=4),
            conv("sevens", (1, 192, 28, 28), 192, (7, 7), groups=192),
            H200,
            "weights and sums take 249 registers of a thread, 336 threads have not as many",
        ),
        (
            replace(ROWS, columns=28, rows=14),
            conv("small", (1, 96, 7, 7), 96, (3, 3), groups=96),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (
            replace(ROWS, columns=56, lanes=32, stages=6),
            conv("wide", (1, 128, 56, 56), 128, (3, 3), groups=128),
            T4,
            "takes 89088 bytes of shared memory, a block has 65536",
        ),
        (BANDED, SEVENS, H200, None),
        (BANDED, SEVENS, T4, "multiplies 16 columns of the input at once, with instructions of depth 16"),
        (
            BANDED,
            conv("odd", (32, 33, 56, 56), 33, (7, 7), groups=33),
            H200,
            "computes two channels a warp, which an odd number of them has not",
        ),
        (replace(BANDED, pairs=24), SEVENS, H200, "blocks have 128 to 512 threads, not 768"),
        (replace(BANDED, segments=3), SEVENS, H200, "a product has 16 rows of eight positions, not 21"),
        (
            BANDED,
            conv("small", (32, 96, 7, 7), 96, (7, 7), groups=96),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (DIAGONAL, SEVENS, H200, None),
        (DIAGONAL, SEVENS, T4, "multiplies two taps at once, with instructions of depth 16"),
        (replace(DIAGONAL, octets=6, strips=4), SEVENS, H200, "blocks have 64 to 512 threads, not 768"),
        (
            DIAGONAL,
            conv("elevens", (1, 96, 28, 28), 96, (11, 11), groups=96),
            H200,
            "weights and sums take 216 registers of a thread, 256 threads have not as many",
        ),
        (
            DIAGONAL,
            conv("few", (1, 16, 28, 28), 16, (7, 7), groups=16),
            H200,
            "half of its channels would be beyond the 16 of the convolution",
        ),
        (
            replace(DIAGONAL, strips=4, octets=2),
            conv("small", (1, 96, 14, 14), 96, (7, 7), groups=96),
            H200,
            "two thirds of the positions would be beyond the 14x14 of an image",
        ),
        (SLIDING, DEPTHWISE, H200, None),
        (replace(SLIDING, across=1), DEPTHWISE, H200, "blocks have 64 to 512 threads, not 12"),
        (
            replace(SLIDING, down=3, rows=5),
            conv("dilated", (1, 96, 56, 56), 96, (3, 3), dilation=2, groups=96),
            H200,
            "rows of the output that share rows of the input lie 2 apart, 3 threads below each other are no multiple",
        ),
        (
            SLIDING,
            SEVENS,
            H200,
            "weights and sums take 466 registers of a thread, 96 threads have not as many",
        ),
        (
            # Of 13 warps one scheduler has four, and a quarter of the registers.
            replace(SLIDING, lanes=8, each=5, across=13, rows=4, down=4),
            conv("warps", (32, 32, 128, 128), 32, (3, 3), groups=32),
            H200,
            "weights and sums take 146 registers of a thread, 416 threads have not as many",
        ),
        (
            replace(SLIDING, lanes=48, each=2, across=4),
            conv("small", (1, 192, 7, 7), 192, (3, 3), groups=192),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (
            replace(SLIDING, rows=28),
            DEPTHWISE,
            T4,
            "takes 167040 bytes of shared memory, a block has 65536",
        ),
        (PRODUCTS, GROUPED, H200, None),
        (
            replace(PRODUCTS, fragments=8),
            GROUPED,
            H200,
            "its sums take 128 registers of a thread, over 96 do not stay in them",
        ),
        (replace(PRODUCTS, warps=8), GROUPED, H200, "only 4 of its 8 warps have work"),
        (
            replace(PRODUCTS, rows=16, columns=16),
            conv("small", (1, 128, 7, 7), 128, (3, 3), groups=32),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (
            replace(PRODUCTS, rows=16, columns=32),
            conv("large", (1, 128, 112, 112), 128, (3, 3), groups=32),
            A100,
            "takes 196800 bytes of shared memory, a block has 166912",
        ),
    ],
)  # fmt: skip
def test_says_why_a_tile_is_none(tile: AnyTile, layer: Layer, target: Target, why: str | None) -> None:
    assert legality(tile, layer, target) == why


@pytest.mark.parametrize("layer", [DEPTHWISE, SEVENS, GROUPED, LINE], ids=lambda layer: layer.label)
def test_candidates_are_read_as_they_are_written(layer: Layer) -> None:
    problem = problem_of(layer)
    shape = shape_of(problem)
    for kind in kinds_for(shape):
        for tile in kind.tiles(shape):
            candidate = candidate_of(tile, 4)
            assert kind.tile_of(candidate) == tile
            assert [other for other in KINDS if other.tile_of(candidate) is not None] == [kind]


@pytest.mark.parametrize("layer", [DEPTHWISE, GROUPED, LINE], ids=lambda layer: layer.label)
def test_takes_what_it_offers_and_nothing_else(layer: Layer) -> None:
    problem = problem_of(layer)
    offered, _ = FAMILY.candidates(problem, H200)
    assert len(offered) == len(set(offered)) == 24 * len(kinds_for(shape_of(problem)))
    for candidate in offered:
        assert FAMILY.refuse(problem, candidate, H200) is None
        for variant in FAMILY.variants(problem, candidate, H200):
            assert variant != candidate
            assert FAMILY.refuse(problem, variant, H200) is None
    first = offered[0]
    bare, long = replace(first, settings=()), replace(first, settings=(("run", 3),))
    for candidate in (bare, long):
        why = f"{candidate} has settings that it cannot have here, or lacks some"
        assert FAMILY.refuse(problem, candidate, H200) == why
    strange = Candidate("grouped", (("tile", 3),), (("run", 1),))
    assert FAMILY.refuse(problem, strange, H200) == f"{strange} is none of its candidates"
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"))
    with pytest.raises(ValueError, match=r"^grouped kind=.* states not all of its settings$"):
        FAMILY.emit(problem, bare, H200, at)
    with pytest.raises(ValueError, match=r"^grouped tile=3 run=1 is no kernel for the problem$"):
        FAMILY.emit(problem, strange, H200, at)


@pytest.mark.parametrize("layer", [DEPTHWISE, GROUPED], ids=lambda layer: layer.label)
def test_predictions_order_the_candidates(layer: Layer) -> None:
    problem = problem_of(layer)
    seconds = [FAMILY.predict(problem, candidate, H200) for candidate in FAMILY.candidates(problem, H200)[0]]
    assert seconds == sorted(seconds)
    # No kernel is faster than its bytes, and the first ones are not far from them.
    bytes_take = problem.nbytes / H200.bandwidth + H200.launch_seconds
    assert bytes_take < seconds[0] < 3 * bytes_take


def test_predictions_follow_bytes_windows_and_multiprocessors() -> None:
    def first(layer: Layer, target: Target = H200) -> float:
        return FAMILY.predict(
            problem_of(layer, target), FAMILY.candidates(problem_of(layer, target), target)[0][0], target
        )

    narrow = conv("narrow", (32, 48, 56, 56), 48, (3, 3), groups=48)
    larger = conv("larger", (32, 96, 56, 56), 96, (7, 7), groups=96)
    assert first(narrow) < first(DEPTHWISE) < first(larger)
    assert first(DEPTHWISE) < first(DEPTHWISE, A100) < first(DEPTHWISE, T4)
    one = conv("one", (1, 96, 56, 56), 96, (3, 3), groups=96)
    # One image does not fill the GPU: longer runs leave more of it idle.
    problem = problem_of(one)
    candidates = [candidate_of(TILE, run) for run in (1, 4, 16)]
    assert sorted(candidates, key=lambda candidate: FAMILY.predict(problem, candidate, H200)) == candidates


def test_what_a_block_computes_is_counted_with_its_padding() -> None:
    problem = problem_of(conv("odd", (2, 15, 9, 11), 25, (3, 3), groups=5))
    candidate = FAMILY.candidates(problem, H200)[0][0]
    found = FAMILY.expense(problem, candidate)
    needed = 2 * 2 * 9 * 11 * 25 * 3 * 9
    assert found.nbytes == problem.nbytes
    assert found.flops > problem.flops
    assert found.why.startswith(f"groups padded from {needed} operations to ")
    depthwise = problem_of(DEPTHWISE)
    assert FAMILY.expense(depthwise, candidate_of(TILE, 1)) == FAMILY.expense(depthwise)


def test_large_windows_go_to_tensor_cores_where_there_are_positions_for_them() -> None:
    def kinds(layer: Layer) -> list[str]:
        found = FAMILY.candidates(problem_of(layer), H200)[0]
        return list(dict.fromkeys(dict(candidate.parameters)["kind"] for candidate in found))

    assert kinds(SEVENS)[:2] == ["banded", "diagonal"]
    # Images that are 7 wide lie beside each other in a product of bands. Of one that is cut into diagonals, seven of 16
    # positions are there: threads of their own waste less.
    assert kinds(conv("small", (32, 768, 7, 7), 768, (7, 7), groups=768))[:2] == ["banded", "sliding"]
    assert not {"banded", "diagonal"} & {*kinds(DEPTHWISE)}
    assert "banded" not in kinds(conv("wide", (32, 96, 56, 56), 96, (3, 19), groups=96))


@pytest.mark.parametrize(
    "layer",
    [
        conv("dilated", (2, 32, 17, 17), 32, (3, 3), groups=32, dilation=2),
        conv("doubled", (2, 32, 17, 17), 64, (3, 3), groups=32),
        conv("line", (2, 32, 50), 32, (5,), groups=32),
        conv("skipping", (2, 32, 17, 17), 32, (1, 1), 2, groups=32),
    ],
    ids=lambda layer: layer.label,
)
def test_what_goes_row_by_row_are_windows_that_meet(layer: Layer) -> None:
    assert not {"rows", "diagonal"} & {kind.header for kind in kinds_for(shape_of(problem_of(layer)))}


@pytest.mark.parametrize(
    ("layer", "slides"),
    [
        (conv("dilated", (2, 32, 17, 17), 32, (3, 3), groups=32, dilation=2), True),
        (conv("skipping", (2, 32, 17, 17), 32, (1, 1), 2, groups=32), True),
        (conv("odd", (2, 35, 17, 19), 35, (5, 3), groups=35), True),
        (conv("doubled", (2, 32, 17, 17), 64, (3, 3), groups=32), False),
        (conv("line", (2, 32, 50), 32, (5,), groups=32), False),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_windows_of_one_result_a_channel_slide_down_images(layer: Layer, slides: bool) -> None:
    found = FAMILY.candidates(problem_of(layer), H200)[0]
    assert any(dict(candidate.parameters)["kind"] == "sliding" for candidate in found) is slides
