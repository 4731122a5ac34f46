"""The solver behind `resolve` against trying everything."""

from __future__ import annotations

import itertools
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.planner.csp import Assignment, Factor, minimize, total


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[Factor]]:
    """Up to seven variables of up to three values, random tables over one to three of them, some entries forbidden."""
    domains = draw(st.lists(st.integers(1, 3), min_size=1, max_size=7))
    factors = []
    for _ in range(draw(st.integers(0, 10))):
        size = draw(st.integers(1, min(3, len(domains))))
        variables = draw(st.lists(st.integers(0, len(domains) - 1), min_size=size, max_size=size, unique=True))
        scope = tuple(sorted(variables))
        count = int(np.prod([domains[v] for v in scope]))
        entry = st.one_of(st.integers(0, 5).map(float), st.just(inf))
        entries = draw(st.lists(entry, min_size=count, max_size=count))
        factors.append(Factor(scope, np.array(entries).reshape([domains[v] for v in scope])))
    return domains, factors


def least(domains: list[int], factors: list[Factor]) -> float:
    return min(total(factors, values) for values in itertools.product(*(range(d) for d in domains)))


@settings(max_examples=100, deadline=None)
@given(problems())
def test_elimination_finds_the_least_cost(problem: tuple[list[int], list[Factor]]) -> None:
    domains, factors = problem
    found = minimize(domains, factors)
    assert found.cost == found.bound == least(domains, factors)
    if found.cost < inf:
        assert total(factors, found.values) == found.cost


@settings(max_examples=100, deadline=None)
@given(problems())
def test_beyond_the_cap_the_bound_lies_below_and_the_solution_above(problem: tuple[list[int], list[Factor]]) -> None:
    domains, factors = problem
    found = minimize(domains, factors, cap=4)
    assert found.bound <= least(domains, factors) <= found.cost
    assert total(factors, found.values) == found.cost


@given(problems())
@settings(max_examples=50, deadline=None)
def test_the_same_question_has_the_same_answer(problem: tuple[list[int], list[Factor]]) -> None:
    domains, factors = problem
    assert minimize(domains, factors) == minimize(domains, list(factors))
    assert minimize(domains, factors, cap=4) == minimize(domains, list(factors), cap=4)


def test_ties_go_to_the_value_that_stands_first() -> None:
    assert minimize([3, 2], [Factor((0, 1), np.zeros((3, 2)))]) == Assignment((0, 0), 0.0, 0.0)


def test_nothing_to_choose_costs_nothing() -> None:
    assert minimize([], []) == Assignment((), 0.0, 0.0)
    assert minimize([1, 4], []) == Assignment((0, 0), 0.0, 0.0)


def test_a_long_chain_with_side_branches_is_exact() -> None:
    """A thousand layers of two values, each joined to the one before and to the one four before."""
    random = np.random.default_rng(0)
    factors = [Factor((i,), random.integers(0, 9, 2).astype(float)) for i in range(1000)]
    for gap in (1, 4):
        factors += [Factor((i - gap, i), random.integers(0, 9, (2, 2)).astype(float)) for i in range(gap, 1000)]
    found = minimize([2] * 1000, factors)
    assert found.cost == found.bound == total(factors, found.values)
