"""Weighted constraint satisfaction: variables with small domains, cost tables over pairs, least total cost.

Exact by bucket elimination in min-fill order while every table stays within a cap; beyond that, mini-buckets give a
lower bound and greedy decoding with local search a solution. Costs are whole numbers held in float64 (exact below
2**53) with infinity for what is forbidden; ties go to the value that stands first.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

TABLE_CAP = 1 << 18
"""Entries of the largest table that elimination may build."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A cost for every combination of values of the variables in `scope` (ascending), one axis each."""

    scope: tuple[int, ...]
    table: Table


@dataclass(frozen=True)
class Assignment:
    """The index of each variable's value, its cost, and a lower bound of the least cost; equal where exact.

    `cost` is infinity where no combination is allowed (or, beyond the cap, none was found).
    """

    values: tuple[int, ...]
    cost: float
    bound: float


def minimize(domains: Sequence[int], factors: Sequence[Factor], cap: int = TABLE_CAP) -> Assignment:
    """Values for variables with `domains[i]` choices each that make the sum of `factors` least.

    `cap` limits the entries of a table; component by component, so one wide component leaves others exact.
    """
    values = [0] * len(domains)
    bound = cost = 0.0
    for component in _components(len(domains), factors):
        inside = set(component)
        own = [factor for factor in factors if factor.scope and factor.scope[0] in inside]
        solved = _solve(component, domains, own, cap)
        for variable in component:
            values[variable] = solved.values[variable]
        cost += solved.cost
        bound += solved.bound
    loose = sum(float(factor.table) for factor in factors if not factor.scope)
    return Assignment(tuple(values), cost + loose, bound + loose)


def total(factors: Sequence[Factor], values: Sequence[int]) -> float:
    """The sum of the factors at an assignment."""
    return sum(float(factor.table[tuple(values[v] for v in factor.scope)]) for factor in factors)


def _components(count: int, factors: Sequence[Factor]) -> list[list[int]]:
    parent = list(range(count))

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for factor in factors:
        for other in factor.scope[1:]:
            a, b = root(factor.scope[0]), root(other)
            parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for variable in range(count):
        groups.setdefault(root(variable), []).append(variable)
    return list(groups.values())


@dataclass(frozen=True)
class _Solved:
    values: dict[int, int]
    cost: float
    bound: float


def _solve(component: list[int], domains: Sequence[int], factors: list[Factor], cap: int) -> _Solved:
    order = _min_fill(component, domains, factors)
    buckets: dict[int, list[Factor]] = {}
    waiting = _Waiting(factors)
    bound, exact = 0.0, True
    for variable in order:
        bucket = buckets[variable] = waiting.take(variable)
        parts = _partition(bucket, domains, cap)
        exact = exact and len(parts) <= 1
        for part in parts:
            message = _eliminate(variable, part, domains)
            if message.scope:
                waiting.add(message)
            else:
                bound += float(message.table)
    values = _decode(order, buckets, domains)
    if exact:
        return _Solved(values, bound, bound)
    starts = [values, dict.fromkeys(component, 0), {variable: domains[variable] - 1 for variable in component}]
    best = _Solved(values, inf, bound)
    for start in starts:
        improved = _improve(component, domains, factors, start)
        cost = total(factors, _dense(improved, len(domains)))
        if cost < best.cost:
            best = _Solved(improved, cost, bound)
    return best


class _Waiting:
    """Factors in the order in which they came, found by variable."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self._factors: list[Factor | None] = []
        self._of: dict[int, list[int]] = {}
        for factor in factors:
            self.add(factor)

    def add(self, factor: Factor) -> None:
        for variable in factor.scope:
            self._of.setdefault(variable, []).append(len(self._factors))
        self._factors.append(factor)

    def take(self, variable: int) -> list[Factor]:
        """Every factor over the variable, which do not wait any longer."""
        taken = []
        for at in self._of.pop(variable, ()):
            factor, self._factors[at] = self._factors[at], None
            if factor is not None:
                taken.append(factor)
        return taken


def _dense(values: dict[int, int], count: int) -> list[int]:
    return [values.get(variable, 0) for variable in range(count)]


CROWDED = 64
"""Neighbours beyond which the pairs that a variable's going makes are not counted: all are taken for new."""


def _min_fill(component: list[int], domains: Sequence[int], factors: Sequence[Factor]) -> list[int]:
    """Each time the variable whose going makes the fewest new pairs; then the smallest table, then the first."""
    near: dict[int, set[int]] = {variable: set() for variable in component}
    for factor in factors:
        for a, b in itertools.permutations(factor.scope, 2):
            near[a].add(b)

    def score(variable: int) -> tuple[int, int, int]:
        around = near[variable]
        if len(around) > CROWDED:
            return len(around) ** 2, len(around), variable
        fill = sum(1 for a, b in itertools.combinations(sorted(around), 2) if b not in near[a])
        return fill, prod(domains[v] for v in around), variable

    scores = {variable: score(variable) for variable in component}
    queue = sorted(scores.values())
    order = []
    while scores:
        found = heapq.heappop(queue)
        variable = found[-1]
        if scores.get(variable) != found:
            continue  # scored again since
        order.append(variable)
        around = near.pop(variable)
        del scores[variable]
        for a in around:
            near[a].discard(variable)
        touched = set(around)
        if found[0]:  # to those near both ends of a new pair it is none any more
            shared = Counter(other for a in around for other in near[a])
            touched |= {other for other, count in shared.items() if count > 1}
            for a in around:
                near[a] |= around - {a}
        for other in touched:
            scores[other] = score(other)
            heapq.heappush(queue, scores[other])
    return order


def _partition(bucket: list[Factor], domains: Sequence[int], cap: int) -> list[list[Factor]]:
    """The bucket in as few parts as first fit finds whose joint tables stay within the cap, largest factors first."""
    parts: list[tuple[set[int], list[Factor]]] = []
    for factor in sorted(bucket, key=lambda f: (-f.table.size, f.scope)):
        for scope, part in parts:
            if prod(domains[v] for v in scope.union(factor.scope)) <= cap:
                scope.update(factor.scope)
                part.append(factor)
                break
        else:
            parts.append((set(factor.scope), [factor]))
    return [part for _, part in parts]


def _eliminate(variable: int, part: list[Factor], domains: Sequence[int]) -> Factor:
    """The sum of the part's tables with the variable at its best."""
    scope = tuple(sorted(set().union(*(factor.scope for factor in part))))
    joint = np.zeros([domains[v] for v in scope])
    for factor in part:
        joint = joint + _spread(factor, scope)
    rest = tuple(v for v in scope if v != variable)
    return Factor(rest, np.asarray(joint.min(axis=scope.index(variable))))


def _spread(factor: Factor, scope: tuple[int, ...]) -> Table:
    """The factor's table with an axis of extent 1 for every variable of `scope` that it lacks."""
    extents = iter(factor.table.shape)
    return factor.table.reshape([next(extents) if v in factor.scope else 1 for v in scope])


def _decode(order: list[int], buckets: dict[int, list[Factor]], domains: Sequence[int]) -> dict[int, int]:
    """Values from last to first eliminated: each the best in its bucket, given those behind it."""
    values: dict[int, int] = {}
    for variable in reversed(order):
        costs = np.zeros(domains[variable])
        for factor in buckets[variable]:
            costs = costs + factor.table[tuple(slice(None) if v == variable else values[v] for v in factor.scope)]
        values[variable] = int(costs.argmin())
    return values


def _improve(
    component: list[int], domains: Sequence[int], factors: list[Factor], start: dict[int, int]
) -> dict[int, int]:
    """Descent from `start` over single variables and then over pairs that share a factor, until nothing gets better.

    Forbidden combinations count before costs, so that an infeasible start is repaired first.
    """
    at: dict[int, list[_Split]] = {variable: [] for variable in component}
    for factor in factors:
        split = _Split(factor.scope, np.isinf(factor.table), np.where(np.isinf(factor.table), 0.0, factor.table))
        for variable in factor.scope:
            at[variable].append(split)
    pairs = sorted({tuple(sorted(p)) for f in factors for p in itertools.combinations(f.scope, 2)})
    values = dict(start)
    moves: list[tuple[int, ...]] = [*((variable,) for variable in component), *pairs]
    near = {move: list({id(f): f for v in move for f in at[v]}.values()) for move in moves}
    around = {move: [_Around.of(move, split) for split in near[move]] for move in moves}
    reads = {move: {v for f in near[move] for v in f.scope} for move in moves}
    of: dict[int, list[tuple[int, ...]]] = {variable: [] for variable in component}
    for move in moves:
        for variable in reads[move]:
            of[variable].append(move)
    # A move is tried again only when something that its factors read has changed: before that it gains nothing.
    open_moves = set(moves)
    while open_moves:
        for move in moves:
            if move not in open_moves:
                continue
            open_moves.discard(move)
            before = tuple(values[v] for v in move)
            found = _best(move, around[move], values, tuple(domains[v] for v in move))
            for variable, old, now in zip(move, before, found, strict=True):
                if old != now:
                    values[variable] = now
                    open_moves.update(of[variable])
    return values


_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class _Split:
    """A factor as two tables: what it forbids, and the costs of what it allows (0 elsewhere)."""

    scope: tuple[int, ...]
    forbidden: npt.NDArray[np.bool_]
    costs: Table


@dataclass(frozen=True, eq=False)
class _Around:
    """A factor as a move sees it: `others` are the variables that stay, None where one moves; where only one of two
    moves, `shape` is that of what is left, beside the other one. Scopes and moves ascend, so axes agree."""

    split: _Split
    others: tuple[int | None, ...]
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, move: tuple[int, ...], split: _Split) -> _Around:
        free = [v for v in split.scope if v in move]
        aside = (-1, 1) if len(move) == 2 and free[0] == move[0] else (-1,)
        others = tuple(None if v in move else v for v in split.scope)
        return cls(split, others, aside if len(free) < len(move) else None)


def _best(
    move: tuple[int, ...], factors: Sequence[_Around], values: dict[int, int], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """The values of `move`'s variables (one or two) with the fewest forbidden factors, then the least cost, given all
    others; those that they have where none is better."""
    forbidden, costs = np.zeros(shape, np.int64), np.zeros(shape)
    for factor in factors:
        index = tuple([_ALL if v is None else values[v] for v in factor.others])
        barred, cost = factor.split.forbidden[index], factor.split.costs[index]
        if factor.shape is not None:
            barred, cost = barred.reshape(factor.shape), cost.reshape(factor.shape)
        forbidden += barred
        costs += cost
    now = tuple(values[v] for v in move)
    least = forbidden.min()
    allowed = np.where(forbidden == least, costs, inf)
    if forbidden[now] == least and costs[now] <= allowed.min():
        return now
    return tuple(int(each) for each in np.unravel_index(int(allowed.argmin()), shape))
