"""Whether kernels copy channels that are no whole loads into padded ones: what the recipe leaves each node's kernels.

That a kernel stores its channels padded for those behind it is a pass (`passes/align/pad_channels.py`). Where the
recipe says nothing, or nothing that changes which kernels are legal, problems are what they are without it, and so is
what was measured of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bolt_build.families.base import Alternative, Family, KernelProblem
from bolt_build.graph.ir import Node
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.layer_wishes import LayerWishes, layer_wishes, reach_of
from bolt_build.schema.recipe import PaddingPolicy, Recipe
from bolt_build.targets import Target

STAGE = "padding"


def padding_wishes(nodes: Sequence[Node], policy: PaddingPolicy) -> LayerWishes:
    """What the recipe wants of each node's channels."""
    return layer_wishes(nodes, policy.mode, "policy.padding.mode", "padding", policy.layers)


class PaddingLimits:
    """Puts what the recipe wants into the problems that families propose. `decisions` says where that changed which
    kernels are legal, and which overrides reached nothing."""

    def __init__(self, nodes: Sequence[Node], recipe: Recipe, target: Target) -> None:
        policy = recipe.policy.padding
        said = dict(policy.layers)
        overrides = [(at, each.match, said[each.match]) for at, each in enumerate(recipe.layers) if each.match in said]
        self._wishes = padding_wishes(nodes, policy)
        self._alignment, self._target = policy.alignment, target
        self._found: dict[tuple[str, KernelProblem, int], KernelProblem] = {}
        self._reached = reach_of(nodes, STAGE, "padding", overrides)
        self._kernels: dict[tuple[str, str, str, str], dict[KernelProblem, tuple[int, int]]] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """A line for each override, and one for each node and family whose kernels were limited."""
        return (*self._reached, *(_limited(*place, counts.values()) for place, counts in self._kernels.items()))

    def applied(self, family: Family, alternative: Alternative) -> Alternative:
        """The alternative with problems that say what the recipe wants, where that leaves other kernels."""
        # What follows in the same kernel is never stored, so that its channels are nobody's business.
        region = alternative.region[:1] if alternative.apart else alternative.region
        steps, seconds = list(alternative.steps), alternative.seconds
        for at, step in enumerate(steps):
            if step.view or (problem := self._limited(family, step.problem, region)) == step.problem:
                continue
            steps[at] = replace(step, problem=problem)
            seconds += self._seconds(family, problem) - self._seconds(family, step.problem)
        apart = tuple(
            self._limited(family, problem, (name,))
            for name, problem in zip(alternative.region, alternative.apart, strict=bool(alternative.apart))
        )
        return replace(alternative, steps=tuple(steps), seconds=seconds, apart=apart)

    def _limited(self, family: Family, problem: KernelProblem, region: Sequence[str]) -> KernelProblem:
        wish, key = self._wishes.of(region)
        if wish == "auto":
            return problem
        padding = self._alignment if wish == "always" else 0
        asked = (family.name, problem, padding)
        every, _ = family.candidates(problem, self._target)
        if asked not in self._found:
            left, _ = family.candidates(replace(problem, padding=padding), self._target)
            self._found[asked] = problem if left == every else replace(problem, padding=padding)
        found = self._found[asked]
        if found is not problem:
            left, _ = family.candidates(found, self._target)
            counts = self._kernels.setdefault((region[-1], wish, key, family.name), {})
            counts[found] = len(left), len(every)
        return found

    def _seconds(self, family: Family, problem: KernelProblem) -> float:
        """Of the kernel that is predicted to be fastest; 0 where there is none, and the alternative is refused."""
        candidates, _ = family.candidates(problem, self._target)
        return family.predict(problem, candidates[0], self._target) if candidates else 0.0


def _limited(name: str, wish: str, key: str, family: str, counts: Iterable[tuple[int, int]]) -> Decision:
    left, every = map(sum, zip(*counts, strict=True))
    action = "left channels as they are" if wish == "never" else "padded channels"
    return Decision(STAGE, name, action, f"{key} is {wish}: {left} of {every} kernels of '{family}' are left")
