"""Candidates to measure: those that a prediction puts first, and others hardly slower whose kernels are needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bolt_build.tuning.trials.shared_kernels import NEAR, SURE, choose


def chosen(*problems: str, limit: int = 4) -> tuple[tuple[int, ...], ...]:
    """Of problems such as "a10 b11", kernels by letter with their predicted times."""
    ranked = [[(word[0], float(word[1:])) for word in problem.split()] for problem in problems]
    times = [[time for _, time in ranking] for ranking in ranked]
    return choose(times, limit, lambda problem, place: (ranked[problem][place][0],))


def test_a_problem_alone_gets_those_that_the_prediction_puts_first() -> None:
    assert chosen("a10 b11 c12 d13 e13") == ((0, 1, 2, 3),)


def test_behind_the_first_three_a_kernel_that_another_problem_needs_goes_before_one_that_none_does() -> None:
    assert chosen("a10 b11 c12 d13 e15", "e1 f2 g3") == ((0, 1, 2, 4), (0, 1, 2))


def test_unless_it_is_predicted_to_be_a_fifth_slower() -> None:
    assert chosen("a10 b11 c12 d13 e16", "e1 f2 g3") == ((0, 1, 2, 3), (0, 1, 2))


def test_the_first_three_are_taken_whoever_needs_them() -> None:
    assert chosen("a10 b10 c10 d10 e10", "d1 e2 f3") == ((0, 1, 2, 3), (0, 1, 2))


def test_what_a_problem_took_counts_for_the_next() -> None:
    # Both could take d or e in the fourth place: the first takes d, and the second does so too.
    assert chosen("a10 b10 c10 d10 e10", "p10 q10 r10 e10 d10") == ((0, 1, 2, 3), (0, 1, 2, 4))


def test_few_candidates_are_all_taken() -> None:
    assert chosen("a1 b100", limit=1) == ((0,),)
    assert chosen("a1 b100", "", limit=2) == ((0, 1), ())


RANKINGS = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(1, 3)), max_size=9), max_size=5)


@given(RANKINGS, st.integers(1, 8))
def test_as_many_as_there_may_be_and_the_first_among_them(rankings: list[list[tuple[str, float]]], limit: int) -> None:
    ranked = [sorted(ranking, key=lambda pair: pair[1]) for ranking in rankings]
    times = [[time for _, time in ranking] for ranking in ranked]
    found = choose(times, limit, lambda problem, place: (ranked[problem][place][0],))
    for places, predicted in zip(found, times, strict=True):
        assert len(places) == len(set(places)) == min(limit, len(predicted))
        assert list(places) == sorted(places)
        assert set(range(min(SURE, limit, len(predicted)))) <= set(places)
        assert all(predicted[place] <= NEAR * predicted[min(limit, len(predicted)) - 1] for place in places)
