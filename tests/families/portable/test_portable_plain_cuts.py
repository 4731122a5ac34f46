"""How plain kernels are cut for a GPU: candidates state it; those of earlier locks have what they had."""

from __future__ import annotations

import pytest
from gpu_row_sums import GRAPHS
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Graph
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
GATE = graph("""
    graph gate batch=8 (%x: f32[8,96,1,1]) -> (%g) {
      const %w0: f32[16,96,1,1] #
      const %w1: f32[960,16,1,1] #
      %h = conv(%x, %w0) | relu // "squeeze"
      %g = conv(%h, %w1) | sigmoid // "excite"
    }""")
NORM = """
    graph norm batch=1 (%x: f32[{rows},{columns}]) -> (%y) {{
      const %s: f32[{columns}] #
      %y = norm(%x, %s, %s) statistic=variance axes=[1] epsilon=1e-5 // "norm"
    }}"""
SOFTMAX = """
    graph softmax batch=1 (%x: f32[64,{extent},{inner}]) -> (%y) {{
      %y = softmax(%x) axis=1 // "softmax"
    }}"""

REGIONS = """
    graph regions batch={count} (%x: f32[1,{channels},40,40], %r: f32[{count},4], %i: i64[{count}]) -> (%y) {{
      %y = roi_align(%x, %r, %i) height=7 width=7 ratio=2 scale=0.25 // "regions"
    }}"""


def problem_of(of: Graph, target: str = "h200") -> KernelProblem:
    """What is proposed last, one kernel for several nodes where there is one."""
    found = FAMILY.propose(of, of.nodes[0], target_named(target), DType.F16)[0]
    return max(found, key=lambda each: len(each.region)).steps[0].problem


def norm(rows: int, columns: int, target: str = "h200") -> KernelProblem:
    return problem_of(graph(NORM.format(rows=rows, columns=columns)), target)


def softmax(extent: int, inner: int = 1) -> KernelProblem:
    return problem_of(graph(SOFTMAX.format(extent=extent, inner=inner)))


def regions(channels: int, count: int, place: int = 1) -> KernelProblem:
    """Of planes, or with channels last."""
    of = graph(REGIONS.format(channels=channels, count=count))
    found = FAMILY.propose(of, of.nodes[0], H200, DType.F16)[0]
    return found[place].steps[0].problem


def direct(*stated: tuple[str, int | str], **settings: int) -> Candidate:
    return Candidate("portable", (("algorithm", "direct"), *stated), tuple(settings.items()))


def call(problem: KernelProblem, candidate: Candidate) -> str:
    """The function and its template arguments, and what is said of blocks."""
    inputs = tuple(f"x{index}" for index in range(len(problem.inputs)))
    outputs = tuple(f"y{index}" for index in range(len(problem.outputs)))
    return FAMILY.emit(problem, candidate, H200, StepExpressions(inputs, outputs, inputs)).call


ROWS = "there are kernels of 4, 8, 16, 32 or 256 threads a row, of 1 or 2 rows"
CUTS = [
    (problem_of(GATE), direct(blocks=4), ".blocks = 4}"),
    (softmax(21), direct(("threads", 1)), "softmax<bolt::portable::Shares, 21, 1, 1,"),
    (softmax(24), direct(("threads", 1)), "softmax<bolt::portable::Shares, 3, 1, 8,"),
    (softmax(49), direct(("threads", 16)), "softmax<bolt::portable::Shares, 4, 16, 1,"),
    (softmax(96), direct(("threads", 4)), "softmax<bolt::portable::Shares, 3, 4, 8,"),
    (softmax(101), direct(("threads", 32)), "softmax<bolt::portable::Shares, 4, 32, 1,"),
    (softmax(1001), direct(("threads", 256)), "softmax<bolt::portable::Shares, 4, 256, 1,"),
    (softmax(4096), direct(("threads", 256)), "softmax<bolt::portable::Shares, 2, 256, 8,"),
    (softmax(21, 7), direct(), "softmax_across<bolt::portable::Shares, 0, 1, 1,"),
    (softmax(21, 8), direct(), "softmax_across<bolt::portable::Shares, 21, 1, 2,"),
    (softmax(96, 2), direct(), "softmax_across<bolt::portable::Shares, 12, 8, 2,"),
    (softmax(2000, 2), direct(), "softmax_across<bolt::portable::Shares, 0, 1, 1,"),
    (norm(2047, 768), direct(("threads", 32)), "norm<3, 32, 1, true,"),
    (norm(2048, 768), direct(("threads", 32), ("rows", 2)), "norm<3, 32, 2, true,"),
    (norm(4096, 320), direct(("threads", 16)), "norm<3, 16, 1, true,"),
    (norm(64, 8200), direct(), "norm<0, 32, 1, true,"),
    (problem_of(GRAPHS["sum-bert"]), direct(("threads", 4), ("factors", "early")), "row_sum<3, 4, true, false,"),
    (regions(256, 9), direct(("words", 1)), "roi_align<false, 1, "),
    (regions(256, 1000), direct(("words", 2)), "roi_align<false, 2, "),
    (regions(248, 1000), direct(("words", 1)), "roi_align<false, 1, "),
    (regions(250, 1000), direct(), "roi_align<false, 0, "),
    (regions(256, 1000, 0), direct(), "roi_align<false, 0, "),
]


@pytest.mark.parametrize(
    ("problem", "candidate", "text"), CUTS, ids=lambda each: str(each) if isinstance(each, str) else ""
)
def test_what_is_offered_states_its_cut_and_earlier_locks_have_the_same(
    problem: KernelProblem, candidate: Candidate, text: str
) -> None:
    offered = [each for each in FAMILY.candidates(problem, H200)[0] if each.parameters[0] == ("algorithm", "direct")]
    assert offered == [candidate]
    assert text in call(problem, candidate)
    assert call(problem, direct()) == call(problem, candidate)
    assert [FAMILY.refuse(problem, each, H200) for each in (candidate, direct())] == [None, None]


def test_another_cut_is_another_kernel() -> None:
    assert ".blocks = 1}" in call(problem_of(GATE), direct(blocks=1))
    assert "softmax<bolt::portable::Shares, 1, 16, 8," in call(softmax(96), direct(("threads", 16)))
    assert "norm<6, 16, 2, false," in call(norm(64, 768), direct(("threads", 16), ("rows", 2)))
    late = direct(("threads", 8), ("factors", "late"))
    assert "row_sum<2, 8, false, false," in call(problem_of(GRAPHS["sum-bert"]), late)


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (regions(24, 9), direct(("words", 2)), "24 channels are no multiple of 16"),
        (regions(24, 9), direct(("words", 3)), "a thread has one word or two"),
        (regions(24, 9, 0), direct(("words", 1)), "words are of images whose channels lie last"),
        (problem_of(GATE), direct(blocks=5), "an image has results for 4 blocks of 256 threads, not for 5"),
        (softmax(96, 2), direct(("threads", 32)), "elements of a line are no neighbours"),
        (softmax(96), direct(("threads", 32), ("rows", 2)), "a line has threads of its own: one at a time"),
        (softmax(96), direct(("threads", 64)), ROWS),
        (softmax(96), direct(("threads", 1)), "a thread has lines of less than 32 elements"),
        (softmax(4096), direct(("threads", 32)),
         "4096 elements are 16 loads of each of 32 threads, which hold 8 at most"),
        (norm(64, 4096), direct(("threads", 256), ("rows", 2)), "a block has one row at a time"),
        (norm(64, 771), direct(("threads", 32)),
         "771 elements are 25 loads of each of 32 threads, which hold 16 at most"),
        (problem_of(GRAPHS["sum-vit"]), direct(("threads", 64), ("factors", "late")), ROWS),
        (problem_of(GRAPHS["sum-given"]), direct(("threads", 8), ("factors", "early")),
         "a sum that is not normalised has no factors"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_a_cut_that_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


@pytest.mark.parametrize("stated", [(("threads", 0),), (("threads", 32), ("rows", 1)), (("blocks", 4),)], ids=str)
def test_a_candidate_that_states_something_else_is_refused(stated: tuple[tuple[str, int], ...]) -> None:
    candidate = direct(*stated)
    reason = f"{candidate} states not all that its kernel takes, or something else"
    assert FAMILY.refuse(norm(64, 768), candidate, H200) == reason
    with pytest.raises(ValueError, match=f"^{reason}$"):
        call(norm(64, 768), candidate)


def test_hosts_are_not_cut() -> None:
    asked = norm(64, 768, "host")
    assert FAMILY.candidates(asked, HOST)[0] == (direct(),)
    stated = direct(("threads", 32))
    assert FAMILY.refuse(asked, stated, HOST) == f"{stated} is none of its candidates"
