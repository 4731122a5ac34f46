"""Chooses how each region of the graph is computed: least predicted cost, formats agreeing at every border.

A variable a node says which alternative covers it; a variable a tensor says in which format it is produced and which
others it is converted to, once for all of its readers. Formats with the same bytes are one format here. Constants take
no part: the weights table holds them in whatever their reader asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import Alternative, TensorFormat, same_bytes
from bolt_build.graph.ir import Node
from bolt_build.planner.csp import TABLE_CAP, Factor, minimize
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.space import Conversion, SearchSpace
from bolt_build.planner.waiting import waits_of
from bolt_build.sizes import sizes_of
from bolt_build.wording import listed, many

PICOSECONDS = 1e12
"""Costs are rounded to whole picoseconds, so that sums are exact and ties do not depend on their order."""


@dataclass(frozen=True)
class TensorConversion:
    """A conversion of one value of the graph."""

    value: str
    conversion: Conversion


@dataclass(frozen=True)
class Cover:
    """One alternative for every region, in the graph's order, and the conversions between them.

    `conversions` of one value stand in the order in which they can run. `seconds` is the sum, `bound` a
    proven lower limit of what any cover takes; they are equal where the choice is exact.
    """

    alternatives: tuple[Alternative, ...]
    conversions: tuple[TensorConversion, ...]
    seconds: float
    bound: float
    decisions: tuple[Decision, ...]


def resolve(space: SearchSpace, cap: int = TABLE_CAP) -> Cover:
    """The cheapest cover of the space whose regions do not wait for each other. Raises BoltError ("no-cover") where
    formats cannot be made to agree."""
    cover = _cheapest(space, cap)
    if (waits := waits_of(cover.alternatives)) is None:
        return cover
    left = tuple(each for each in space.alternatives if each is not waits.alternative)
    found = resolve(replace(space, alternatives=left), cap)
    nodes, others = (listed([*each.region]) for each in waits)
    reason = f"a kernel of it and one of {others} would wait for each other"
    declined = Decision("resolve", f"{sizes_of(space.graph)}: {nodes}", "declined", reason)
    return replace(found, bound=min(cover.bound, found.bound), decisions=(declined, *found.decisions))


def _cheapest(space: SearchSpace, cap: int) -> Cover:
    model = _Model(space)
    if model.diagnostics:
        raise BoltError(model.diagnostics)
    domains = [len(d) for d in model.node_domains] + [len(d) for d in model.tensor_domains]
    found = minimize(domains, model.factors(), cap)
    if found.cost == inf:
        raise BoltError([_no_cover(space)])
    return model.cover(found.values, found.cost / PICOSECONDS, found.bound / PICOSECONDS)


def _no_cover(space: SearchSpace) -> Diagnostic:
    message = "no choice of kernels computes the whole graph with formats that agree between them"
    hint = "a kernel family must offer a conversion between the formats that its neighbours produce and accept"
    return Diagnostic("no-cover", message, hint=hint, subject=space.graph.name)


@dataclass(frozen=True)
class _State:
    """Of a tensor: index of the format class it is produced in (None: not produced), and the classes it is held in."""

    produced: int | None
    held: frozenset[int]
    conversions: tuple[Conversion, ...]
    cost: float


class _Model:
    """The space as variables: nodes first (in the graph's order), then tensors (in the order of their producers)."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.diagnostics: list[Diagnostic] = []
        graph = space.graph
        self.node_index = {node.name: index for index, node in enumerate(graph.nodes)}
        self.node_domains: list[list[int]] = [[] for _ in graph.nodes]
        for number, alternative in enumerate(space.alternatives):
            for name in alternative.region:
                self.node_domains[self.node_index[name]].append(number)
        self.reads = [_border(space, alternative) for alternative in space.alternatives]
        self.writes = [_written(space, alternative) for alternative in space.alternatives]
        self.tensors = [v.name for v in graph.values if v.constant is None]
        self.tensor_index = {name: index for index, name in enumerate(self.tensors)}
        self.fixed, self.wanted = dict(space.fixed), dict(space.wanted)
        self.conversions = {(c.shape, c.source, c.to): c for c in space.conversions}
        self.classes = self._format_classes()
        self.tensor_domains = [self._states(name) for name in self.tensors]
        for node, domain in zip(graph.nodes, self.node_domains, strict=True):
            if not domain:
                message = f"no alternative covers node '{node.name}'"
                self.diagnostics.append(Diagnostic("no-kernel", message, subject=node.name))

    def _format_classes(self) -> dict[str, list[list[TensorFormat]]]:
        """For each tensor its possible formats, those with the same bytes together."""
        found: dict[str, dict[TensorFormat, None]] = {name: {} for name in self.tensors}
        for border in (self.space.fixed, self.space.wanted, *self.reads, *self.writes):
            for name, format in border:
                if name in found:
                    found[name][format] = None
        classes: dict[str, list[list[TensorFormat]]] = {}
        for name, formats in found.items():
            shape, groups = self.space.graph.type(name).shape, classes.setdefault(name, [])
            for format in formats:
                group = next((g for g in groups if same_bytes(shape, g[0], format)), None)
                if group is None:
                    groups.append([format])
                else:
                    group.append(format)
        return classes

    def class_of(self, name: str, format: TensorFormat) -> int:
        return next(i for i, group in enumerate(self.classes[name]) if format in group)

    def _states(self, name: str) -> list[_State]:
        """Every way in which a tensor can be produced and converted, and one in which it does not exist."""
        count = len(self.classes[name])
        states = [] if name in self.fixed else [_State(None, frozenset(), (), 0.0)]
        sources = [self.class_of(name, self.fixed[name])] if name in self.fixed else range(count)
        steps = self._steps_between(name)
        for source in sources:
            rest = [c for c in range(count) if c != source]
            for size in range(len(rest) + 1):
                for more in itertools.combinations(rest, size):
                    chain = _cheapest_chain(source, more, steps)
                    if chain is not None:
                        cost = float(sum(round(c.seconds * PICOSECONDS) for c in chain))
                        states.append(_State(source, frozenset((source, *more)), chain, cost))
        return states

    def _steps_between(self, name: str) -> dict[tuple[int, int], Conversion]:
        """The cheapest conversion from any format of one class to any of another."""
        shape, steps = self.space.graph.type(name).shape, {}
        for (a, sources), (b, targets) in itertools.permutations(enumerate(self.classes[name]), 2):
            offers = [self.conversions.get((shape, s, t)) for s in sources for t in targets]
            known = [offer for offer in offers if offer is not None]
            if known:
                steps[a, b] = min(known, key=lambda c: round(c.seconds * PICOSECONDS))
        return steps

    def factors(self) -> list[Factor]:
        """Costs of alternatives and conversions, and what must agree."""
        nodes = self.space.graph.nodes
        factors = [self._node_cost(index) for index in range(len(nodes))]
        factors += [self._tensor_cost(index) for index in range(len(self.tensors))]
        factors += self._regions()
        for index, node in enumerate(nodes):
            factors += self._borders(index, node)
        return factors

    def _node_cost(self, index: int) -> Factor:
        """An alternative's cost stands on the first node of its region."""
        alternatives = [self.space.alternatives[number] for number in self.node_domains[index]]
        name = self.space.graph.nodes[index].name
        costs = [round(a.seconds * PICOSECONDS) if a.region[0] == name else 0 for a in alternatives]
        return Factor((index,), np.array(costs, dtype=np.float64))

    def _tensor_cost(self, index: int) -> Factor:
        name, states = self.tensors[index], self.tensor_domains[index]
        costs = np.array([state.cost for state in states])
        if name in self.wanted:
            needed = self.class_of(name, self.wanted[name])
            costs[[needed not in state.held for state in states]] = inf
        return Factor((len(self.node_domains) + index,), costs)

    def _regions(self) -> list[Factor]:
        """Nodes of one region choose it together."""
        pairs = {
            (self.node_index[alternative.region[0]], self.node_index[name])
            for alternative in self.space.alternatives
            for name in alternative.region[1:]
        }
        factors = []
        for pair in sorted(pairs):
            a, b = sorted(pair)
            table = np.zeros((len(self.node_domains[a]), len(self.node_domains[b])))
            for i, one in enumerate(self.node_domains[a]):
                for j, other in enumerate(self.node_domains[b]):
                    spans = [set(self.space.alternatives[n].region) for n in (one, other)]
                    both = {self.space.graph.nodes[a].name, self.space.graph.nodes[b].name}
                    if one != other and any(both <= span for span in spans):
                        table[i, j] = inf
            factors.append(Factor((a, b), table))
        return factors

    def _borders(self, index: int, node: Node) -> list[Factor]:
        """Between a node and each tensor that it, or an alternative whose region starts at it, reads or writes."""
        domain, factors = self.node_domains[index], []
        touched = dict.fromkeys(node.outputs)
        for number in domain:
            if self.space.alternatives[number].region[0] == node.name:
                touched.update(dict.fromkeys(name for name, _ in self.reads[number]))
        for name in touched:
            at = self.tensor_index[name]
            states = self.tensor_domains[at]
            table = np.zeros((len(domain), len(states)))
            for i, number in enumerate(domain):
                table[i] = self._agreement(number, node, name, states)
            factors.append(Factor((index, len(self.node_domains) + at), table))
        return factors

    def _agreement(self, number: int, node: Node, name: str, states: Sequence[_State]) -> list[float]:
        """0 for each state of the tensor that goes with the alternative, infinity for the others."""
        if name in node.outputs:
            format = dict(self.writes[number]).get(name)
            made = None if format is None else self.class_of(name, format)
            return [0.0 if state.produced == made else inf for state in states]
        if self.space.alternatives[number].region[0] != node.name:
            return [0.0] * len(states)
        needed = {self.class_of(name, format) for read, format in self.reads[number] if read == name}
        return [0.0 if needed <= state.held else inf for state in states]

    def cover(self, values: Sequence[int], seconds: float, bound: float) -> Cover:
        nodes = self.space.graph.nodes
        chosen = dict.fromkeys(self.node_domains[i][values[i]] for i in range(len(nodes)))
        conversions = [
            TensorConversion(name, conversion)
            for index, name in enumerate(self.tensors)
            for conversion in self.tensor_domains[index][values[len(nodes) + index]].conversions
        ]
        subject = str(sizes_of(self.space.graph))
        size = f"{many(len(nodes), 'node')} with {many(len(conversions), 'conversion')}"
        reason = f"{self.space.basis} {seconds * 1e6:.1f} us over {size}"
        if seconds == bound:
            decision = Decision("resolve", subject, "chose the cheapest cover", f"{reason}; exact")
        else:
            over = f"{reason}; at least {bound * 1e6:.1f} us in any cover, exactness given up beyond the table cap"
            decision = Decision("resolve", subject, "chose a cover within a bound", over)
        picked = tuple(self.space.alternatives[number] for number in chosen)
        return Cover(picked, tuple(conversions), seconds, bound, (decision,))


def _border(space: SearchSpace, alternative: Alternative) -> tuple[tuple[str, TensorFormat], ...]:
    """Values that an alternative reads from outside of it, with the formats it asks for; constants left out."""
    made = {name for step in alternative.steps for name in step.outputs}
    found = {
        (name, operand.format): None
        for step in alternative.steps
        for name, operand in zip(step.inputs, step.problem.inputs, strict=True)
        if name not in made and space.graph.constant(name) is None
    }
    return tuple(found)


def _written(space: SearchSpace, alternative: Alternative) -> tuple[tuple[str, TensorFormat], ...]:
    """Values of the graph that an alternative produces, with their formats."""
    return tuple(
        (name, operand.format)
        for step in alternative.steps
        for name, operand in zip(step.outputs, step.problem.outputs, strict=True)
        if space.graph.has(name)
    )


def _cheapest_chain(
    source: int, more: tuple[int, ...], steps: dict[tuple[int, int], Conversion]
) -> tuple[Conversion, ...] | None:
    """Conversions, in an order in which they can run, that make every class of `more` from `source` or each other."""
    best: tuple[int, tuple[Conversion, ...]] | None = None
    for order in itertools.permutations(more):
        chain, held = [], [source]
        for wanted in order:
            offers = [steps[have, wanted] for have in held if (have, wanted) in steps]
            if not offers:
                break
            chain.append(min(offers, key=lambda c: round(c.seconds * PICOSECONDS)))
            held.append(wanted)
        else:
            cost = sum(round(c.seconds * PICOSECONDS) for c in chain)
            if best is None or cost < best[0]:
                best = cost, tuple(chain)
    return None if best is None else best[1]
