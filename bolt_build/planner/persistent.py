"""Whether products that follow each other, or a convolution and the pooling behind it, are computed by one kernel: what
the recipe says of it, and what came of it.

Families offer such kernels as alternatives over several nodes, which say by `Alternative.apart` what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, Refusal
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.patterns.chains import chains_in, inverted_in, normed_in
from bolt_build.graph.patterns.gates import gated_in
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.layer_wishes import LayerWishes, layer_wishes, reach_of
from bolt_build.planner.selection import Winner
from bolt_build.schema.recipe import Recipe
from bolt_build.sizes import Dims, Sizes, sizes_of

STAGE = "persistent"
_KEY = "policy.fusion.persistent"


@dataclass(frozen=True)
class OfferedChain:
    """Nodes that one kernel of `family` can compute: the nodes, the problem of that kernel, those of the nodes one
    by one, and the seconds that either is predicted to take (None where no alternative of a node has the problem).
    `wish` is what the recipe says of them."""

    region: tuple[str, ...]
    family: str
    problem: KernelProblem
    apart: tuple[KernelProblem, ...]
    seconds: float
    apart_seconds: tuple[float | None, ...]
    wish: str


@dataclass(frozen=True)
class ChainOutcome:
    """What became of a chain in a plan. Seconds are measured where `measured` (one for the kernel of the chain, one for
    each of those apart) says so, otherwise predicted. `reason` is one line for people."""

    batch: int
    chain: OfferedChain
    fused: bool
    seconds: float
    apart_seconds: tuple[float | None, ...]
    measured: tuple[bool, ...]
    reason: str
    dims: Dims = ()


@dataclass(frozen=True)
class Wishes:
    """What a recipe wants of each node, and what each computes in."""

    layers: LayerWishes
    precisions: Mapping[str, DType]

    def of(self, region: Sequence[str]) -> tuple[str, str]:
        """What is wanted ("auto", "always", "never") of such nodes in one kernel, and the key that says so."""
        return self.layers.of(region)

    def refuse(self, region: Sequence[str]) -> str | None:
        """Why the recipe does not let one kernel compute these nodes, None where it does."""
        wish, key = self.of(region)
        if wish == "never":
            return f"{key} is never"
        return self.mixed(region)

    def mixed(self, region: Sequence[str]) -> str | None:
        """Why no alternative computes all of these nodes, which the recipe keeps in different precisions; None where it
        does not."""
        found = [(name, self.precisions[name]) for name in region]
        name, precision = found[0]
        for other, its in found[1:]:
            if its is not precision:
                return f"'{name}' computes in {precision.value} and '{other}' in {its.value}"
        return None


def wishes(graph: Graph, recipe: Recipe, precisions: Sequence[DType]) -> tuple[Wishes, tuple[Decision, ...]]:
    """What the recipe wants of the graph's nodes, and a line for each layer glob that says something: what it reached.

    `precisions` are those of the nodes in their order.
    """
    said = [(at, each.match, each.persistent) for at, each in enumerate(recipe.layers) if each.persistent is not None]
    default = recipe.policy.fusion.persistent
    layers = layer_wishes(graph.nodes, default, _KEY, "persistent", [(match, wish) for _, match, wish in said])
    of_precision = {node.name: precision for node, precision in zip(graph.nodes, precisions, strict=True)}
    return Wishes(layers, of_precision), reach_of(graph.nodes, STAGE, "persistent", said)


def chains_of(alternatives: Sequence[Alternative], asked: Wishes) -> tuple[OfferedChain, ...]:
    """The chains that alternatives offer: of a region as many as it has forms, which read different formats."""
    seconds = {(a.region, a.steps[0].problem): a.seconds for a in reversed(alternatives) if len(a.steps) == 1}
    return tuple(
        OfferedChain(
            each.region, each.family, each.steps[0].problem, each.apart, each.seconds,
            tuple(
                0.0 if _read_in_place(problem) else seconds.get(((name,), problem))
                for name, problem in zip(each.region, each.apart, strict=True)
            ),
            asked.of(each.region)[0],
        )
        for each in alternatives
        if each.apart
    )  # fmt: skip


def _read_in_place(problem: KernelProblem) -> bool:
    """True for runs of columns, which elementwise steps read where they lie (`in_place.py`), as in a gate."""
    return isinstance(problem.op, Slice) and all(step == 1 for step in problem.op.step)


def enforce(
    graph: Graph, alternatives: Sequence[Alternative], refusals: Sequence[Refusal], asked: Wishes, target: str
) -> tuple[list[Alternative], tuple[Decision, ...]]:
    """The alternatives without those that chains take the place of, where the recipe wants chains wherever there are
    any; and a line for every chain that it wants.

    Of chains that overlap those of three nodes, of normalisations and gated products are taken first, then the first in
    the graph's order, which leaves no shorter way to take as many.
    """
    offered = dict.fromkeys(each.region for each in alternatives if each.apart)
    taken: dict[str, tuple[str, ...]] = {}
    decisions = []
    wholes = [each.region for each in (*inverted_in(graph), *normed_in(graph))]
    for region in (*wholes, *(each.region for each in gated_in(graph))):
        wish, key = asked.of(region)
        if wish == "always" and region in offered and not any(name in taken for name in region):
            taken.update(dict.fromkeys(region, region))
            front = "' and '".join(region[:-1])
            decisions.append(Decision(STAGE, region[-1], "fused", f"behind '{front}': {key} is always"))
    for found in chains_in(graph):
        region = found.region
        wish, key = asked.of(region)
        first, second = region
        if wish != "always" or second in taken.get(first, ()):
            continue
        if region not in offered:
            reason = found.obstacle or _refused(region, refusals, asked, target)
            decisions.append(Decision(STAGE, second, "declined", f"behind '{first}', {key} is always: {reason}"))
        elif joined := taken.get(first) or taken.get(second):
            other = "' and '".join(joined)
            reason = f"behind '{first}', {key} is always: one kernel computes '{other}' already"
            decisions.append(Decision(STAGE, second, "declined", reason))
        else:
            taken.update(dict.fromkeys(region, region))
            decisions.append(Decision(STAGE, second, "fused", f"behind '{first}': {key} is always"))
    kept = [
        each
        for each in alternatives
        if all(name not in taken for name in each.region) or (each.apart and taken.get(each.region[0]) == each.region)
    ]
    return kept, tuple(decisions)


def _refused(region: tuple[str, ...], refusals: Sequence[Refusal], asked: Wishes, target: str) -> str:
    what = ", ".join(region)
    found = [refusal.reason for refusal in refusals if refusal.what == what]
    if found:
        return "; ".join(dict.fromkeys(found))
    return asked.refuse(region) or f"no kernel family of '{target}' computes both in one kernel"


def outcomes(
    sizes: Sizes, chains: Sequence[OfferedChain], chosen: Sequence[Alternative], winners: Mapping[KernelProblem, Winner]
) -> tuple[ChainOutcome, ...]:
    """What became of the chain of each region in a cover: of its forms that which was chosen; or the fastest, where one
    that was measured comes before one that was not."""
    picked = {each.region: each.steps[0].problem for each in chosen if each.apart}
    joined = {name: region for region in picked for name in region}

    def place(chain: OfferedChain) -> tuple[bool, bool, float]:
        winner = winners.get(chain.problem)
        time = chain.seconds if winner is None else winner.seconds
        return picked.get(chain.region) != chain.problem, winner is None, time

    forms: dict[tuple[str, ...], list[OfferedChain]] = {}
    for chain in chains:
        forms.setdefault(chain.region, []).append(chain)
    return tuple(_outcome(sizes, min(each, key=place), joined, winners) for each in forms.values())


def _outcome(
    sizes: Sizes, chain: OfferedChain, joined: Mapping[str, tuple[str, ...]], winners: Mapping[KernelProblem, Winner]
) -> ChainOutcome:
    found = [winners.get(problem) for problem in (chain.problem, *chain.apart)]
    predicted = (chain.seconds, *chain.apart_seconds)
    seconds = [known if won is None else won.seconds for won, known in zip(found, predicted, strict=True)]
    timed = all(winner is not None for winner, known in zip(found, predicted, strict=True) if known != 0.0)
    # What moves no byte has no kernel to be measured.
    measured = tuple(timed if known == 0.0 else won is not None for won, known in zip(found, predicted, strict=True))
    times = [_time(each, how) for each, how in zip(seconds, measured, strict=True)]
    reason = f"{times[0]} in one kernel, {' and '.join(times[1:])} apart"
    fused = joined.get(chain.region[0]) == chain.region
    other = next((joined[name] for name in chain.region if name in joined), None)
    if not fused and other is not None:
        names = "' and '".join(other)
        reason += f"; one kernel computes '{names}' already"
    elif not fused and not measured[0] and all(measured[1:]):
        reason += "; it was not measured, unlike the kernels apart"
    elif not fused and _faster(seconds):
        reason += "; the cover of the whole graph is cheaper with them apart"
    times_apart = tuple(seconds[1:])
    return ChainOutcome(sizes.batch, chain, fused, seconds[0] or 0.0, times_apart, measured, reason, sizes.dims)


def _faster(seconds: Sequence[float | None]) -> bool:
    """True where one kernel (the first) takes less than those apart."""
    known = [each for each in seconds if each is not None]
    return len(known) == len(seconds) and known[0] < sum(known[1:])


def _time(seconds: float | None, measured: bool) -> str:
    if seconds is None:
        return "no kernel"
    return f"{'measured' if measured else 'predicted'} {seconds * 1e6:.2f} us"


def decisions_of(found: Sequence[ChainOutcome]) -> tuple[Decision, ...]:
    """A line for each chain that times decided about; what the recipe decided has its line already."""
    return tuple(
        Decision(
            STAGE, f"{sizes_of(each)}: {each.chain.region[-1]}", "fused" if each.fused else "declined",
            f"behind '{each.chain.region[0]}': {each.reason}",
        )
        for each in found
        if each.chain.wish == "auto"
    )  # fmt: skip
