"""Which kernel prediction chooses where an H200 has shown an earlier prediction crooked, and why. No GPU is needed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from families_harness import Input, Layer
from families_layers import stage
from gpu_attention_layers import attention
from gpu_normed import normed
from gpu_normed import step_of as normed_step
from gpu_pairs import pair, steps_of
from gpu_pools import pooled, windows
from gpu_products import GELU, SILU, TOLERANCE, conv
from proposed import one_problem

from benchmarks import record
from benchmarks.kernels import uncertain_kernels
from benchmarks.kernels.uncertain_kernels import FAMILIES, TARGET, alone, form_of, planned, predicted
from benchmarks.planning.kernel_times import stated
from benchmarks.planning.predictions import geometric_mean
from benchmarks.planning.problem_texts import problem_of
from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm


def first(problem: KernelProblem, family: str, suits: Callable[[dict[str, int | str]], bool]) -> dict[str, int | str]:
    """What the fastest by prediction of the kernels that suit states."""
    stated = {
        each: dict((*each.parameters, *each.settings)) for each in FAMILIES[family].candidates(problem, TARGET)[0]
    }
    return stated[min((each for each in stated if suits(stated[each])), key=lambda each: predicted(problem, each))]


def depthwise(channels: int, extent: int, window: int) -> KernelProblem:
    layer = conv("d", (32, channels, extent, extent), channels, (window,) * 2, 2, groups=channels, epilogue=SILU)
    return one_problem(FAMILIES["grouped"], layer, TARGET)


@pytest.mark.parametrize("window", [9, 11])
def test_large_windows_of_few_blocks_go_to_tiles_of_many_warps(window: int) -> None:
    """MixNet's, of which a multiprocessor has one block: with three warps they took twice as long as predicted, for
    each waits for its own sums."""
    tile = first(depthwise(144, 14, window), "grouped", lambda each: each["kind"] == "depthwise")
    threads = int(tile["lanes"]) * int(tile["rows"]) * int(tile["columns"]) // int(tile["each"])
    assert threads >= 6 * 32


def test_a_block_has_one_tile_where_two_would_leave_a_multiprocessor_half_its_warps() -> None:
    """MobileNetV3's: 4.9 us beside 8.3."""
    runs = [
        Candidate("grouped", (("kind", "depthwise"), ("vector", 4), ("lanes", 12), ("rows", 8), ("columns", 8),
                              ("each", 4), ("weights", "registers")), (("run", run),))
        for run in (1, 2)
    ]  # fmt: skip
    one, two = (predicted(depthwise(96, 28, 5), each) for each in runs)
    assert one < two


def test_keys_of_long_heads_are_read_by_more_queries_at_once() -> None:
    """Gemma's: what 64 queries read of heads of 256 elements is more than L2 brings in the time that they compute."""
    layer = attention("gemma", (4, 8, 512, 512), 256, kv_heads=4, causal=True, cap=50.0)
    problem = one_problem(FAMILIES["attention"], layer, TARGET)
    assert first(problem, "attention", lambda each: True)["groups"] == 2
    rest = (("keys", 64), ("stages", 2), ("scores", "next"), ("blocks", 1))
    of_groups = [Candidate("attention", (("kind", "persistent"), ("groups", groups), *rest)) for groups in (1, 2)]
    one, two = (predicted(problem, each) for each in of_groups)
    assert two < one


def test_masks_whose_rows_begin_anywhere_are_copied_in_whole_pieces() -> None:
    """ViTDet's windows of 196 keys took 2.5 times as long as those of 200 when such masks were copied by elements. In
    pieces of 16 bytes, some of which two rows have, they take a little longer."""

    def us(keys: int, dtype: DType) -> float:
        mask = Input((36, 12, 196, keys), dtype=dtype)
        problem = one_problem(FAMILIES["attention"], attention("m", (36, 12, 196, keys), 64, mask=mask), TARGET)
        tile = first(problem, "attention", lambda each: each["kind"] == "warpgroup")
        return predicted(problem, Candidate("attention", tuple(tile.items())))

    assert us(200, DType.F16) < us(196, DType.F16) < 1.5 * us(200, DType.F16)


def test_a_pooling_whose_epilogue_reads_tensors_has_few_windows_a_thread() -> None:
    """Each waits for what it reads; without them threads have four beside each other."""
    shape, op = (32, 48, 56, 56), windows("average", 3, 1, 1)
    stages, read = (stage("sub", 1), stage("add", 2)), (Input((32, 48, 56, 56)),) * 2
    _, bare = alone("portable", pooled("bare", op, *shape))
    _, joined = alone("portable", pooled("joined", op, *shape, epilogue=stages, operands=read))
    tiles = [first(step.problem, "portable", lambda each: each["algorithm"] == "sliding") for step in (bare, joined)]
    assert [tile["across"] for tile in tiles] == [4, 1]


def test_slabs_of_channels_in_rows_have_as_many_threads_as_blocks_may() -> None:
    """Their loads are found one by one: with 128 threads they took 2.2 times as long as with 512."""
    scale = Input((320, 1, 1), constant=True)
    op = Norm("variance", (1, 2, 3), 1e-5, 32)
    layer = Layer("n", op, (Input((2, 320, 64, 64)), scale, scale), (), DType.F16, TOLERANCE)
    problem = alone("portable", layer, Layout.ROW)[1].problem
    texts = (f"portable algorithm=slabs across=8 cluster=2 chunks=1 threads={threads}" for threads in (128, 256, 512))
    slabs = [each for text in texts if (each := stated(problem, text)) is not None]
    few, some, many = (predicted(problem, each) for each in slabs)
    assert few > some > many


def test_a_cluster_that_finds_no_room_waits_for_others_to_end() -> None:
    """ConvNeXt's last images: of 32 clusters of eight blocks an H200 holds 30 at once, so that they took 36.1 us, and
    those of six blocks 16.1."""
    problem = normed_step(normed("n", (32, 768, 7, 7))).problem
    of_eight, of_six = (
        Candidate("grouped", (("kind", "normed"), ("down", 1), ("across", 1), ("slab", 32), ("parts", parts),
                              ("warps", warps)))
        for parts, warps in ((8, 4), (6, 8))
    )  # fmt: skip
    assert predicted(problem, of_six) < predicted(problem, of_eight)


def test_a_thread_with_fewer_results_is_faster_where_images_are_few() -> None:
    """EfficientNet's first at batch 1: 2.1 us, and 3.0 with two results of a thread."""
    layer = conv("d", (1, 672, 14, 14), 672, (5, 5), 2, groups=672, epilogue=SILU)
    tile = first(one_problem(FAMILIES["grouped"], layer, TARGET), "grouped", lambda each: each["kind"] == "depthwise")
    assert tile["each"] == 1


def test_weights_of_a_thin_pair_come_sooner_to_more_warps() -> None:
    """ConvNeXt's first blocks: 61.4 us with twelve warps, 73.7 with eight of twice the rows."""
    layer = pair(conv("a", (32, 96, 56, 56), 384, (1, 1), epilogue=GELU), conv("b", (32, 384, 56, 56), 96, (1, 1)))
    problem = steps_of(layer)[0].problem
    sizes = (("k", 96), ("n", 384), ("n1", 96))
    twelve, eight = (
        Candidate("cutlass", (*sizes, ("rows", rows), ("warps", warps))) for rows, warps in ((16, 12), (32, 8))
    )
    assert predicted(problem, twelve) < predicted(problem, eight)


@pytest.mark.parametrize("of", ["kept", "shuffled"])
def test_threads_that_store_boxes_are_slower_than_tma(of: str) -> None:
    """As an H200 timed it: without that the kernels were predicted to take two thirds of their time, and those whose
    one warpgroup stores a whole tile came first."""
    result = json.loads((record.RESULTS / "uncertain_kernels.json").read_text(encoding="utf-8"))
    ratios, regrets = list[float](), list[float]()
    for shape in (shape for name, shape in result["shapes"].items() if name.startswith(of)):
        problem = problem_of(shape["what"], shape["problem"])
        assert problem is not None
        us = dict[float, float]()
        for each in shape["kernels"]:
            candidate = stated(problem, each["candidate"])
            assert candidate is not None
            us[predicted(problem, candidate)] = each["us"]
        ratios += [mine / own for mine, own in us.items()]
        regrets.append(us[min(us)] / min(us.values()))
    assert 0.9 < geometric_mean(ratios) < 1.1
    assert geometric_mean(regrets) < 1.12


def test_what_is_timed_next_are_several_forms_of_drawn_problems() -> None:
    """The first by prediction is the first of each; a seed draws the same problems again, and another other ones."""
    plan = list(planned(1, 1, 3))
    problems = {name: trial.step.problem for name, _, trial in plan}
    assert len(problems) == len(uncertain_kernels.CLASSES)
    for name, problem in problems.items():
        kernels = [trial.candidate for of, _, trial in plan if of == name]
        us = [predicted(problem, each) for each in kernels]
        assert us[0] == min(us), name
        assert len(set(kernels)) == 3, name
    forms = {name: {form_of(trial.candidate) for of, _, trial in plan if of == name} for name in problems}
    assert sum(len(each) > 1 for each in forms.values()) > len(problems) / 2
    references = [trial.reference for *_, trial in plan]
    assert references == [None if at % 3 == 0 else at // 3 * 3 for at in range(len(plan))]
    again, other = (
        {trial.step.problem.digest for *_, trial in planned(seed, 1, 1, ("line", "kept"))} for seed in (1, 2)
    )
    assert again <= {problem.digest for problem in problems.values()}
    assert again.isdisjoint(other)
