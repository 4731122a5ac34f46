"""The fewest layers to keep wide until what rounding does to a model's outputs is within their tolerance.

A layer whose numbers exceed the half type has to be wide, and whoever reads them. Of the others each is rounded alone
first: roundings of different layers are independent, so that the squares of what they do add up. Those that do most are
kept wide until the outputs pass, and then given back one by one where they pass without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.verify.judgement import MASK
from bolt_build.verify.models.rounded_model import LARGEST, Layer, RoundedModel
from bolt_build.verify.outputs import ComparedOutputs, coarsest_of, compare_outputs
from bolt_build.verify.reference import Reference, widened
from bolt_build.verify.samples import Samples
from bolt_build.verify.sensitivity import Growth, Share, amplification
from bolt_build.verify.tolerance import Tolerances


@dataclass(frozen=True)
class WideLayer:
    """A layer to keep wide. `largest` is the largest number that it leaves or reads beyond its half type, 0 where none
    is; `error` how many times the recipe's tolerance it was off by in the engine, 0 where that does not ask for it;
    `share` the part of what the outputs may be off by that its roundings alone take up."""

    layer: Layer
    largest: float
    error: float
    share: float


@dataclass(frozen=True)
class Proposal:
    """`wide`: the layers to keep wide, in execution order, of `layers` in half precision. `used` is the part of their
    limits that the outputs then use by rounding alone, `before` what they use of them as the plan is. `passes` says
    whether that is enough."""

    batch: int
    layers: int
    wide: tuple[WideLayer, ...]
    before: float
    used: float
    passes: bool


class _Trials:
    """Runs of the rounded model on every sample, compared with the reference."""

    def __init__(self, reference: Reference, plan: BatchPlan, samples: Samples, tolerances: Tolerances) -> None:
        self._plan, self._tolerances = plan, tolerances
        self.rounded, self._run = reference.rounded(plan)
        self._inputs: list[dict[str, Array]] = []
        self._expected: list[dict[str, Array]] = []
        self._growth: dict[str, Growth] = {}
        count = samples.count(plan.batch, plan.inputs)
        for number in range(count):
            feeds = {name: widened(array) for name, array in samples.inputs(plan, number).items()}
            self._inputs.append(feeds)
            self._expected.append(reference.outputs(feeds))
            share = Share(plan.batch, number, count)
            grown = amplification(reference, feeds, self._expected[-1], coarsest_of(plan), share, samples.seed)
            self._growth = {name: each.most(self._growth.get(name, Growth())) for name, each in grown.items()}

    def sizes(self) -> dict[str, float]:
        """The largest magnitude of each tensor over all samples, nothing rounded."""
        names, found = self.rounded.sizes, dict[str, float]()
        for feeds in self._inputs:
            made = self._run(list(names.values()), self.rounded.feeds(feeds, frozenset(self.rounded.layers)))
            for tensor, name in names.items():
                found[tensor] = max(found.get(tensor, 0.0), float(made[name].max(initial=0.0)))
        return found

    def used(self, wide: frozenset[int], *, first: bool = False) -> float:
        """The part of their limits that outputs use, of all samples or of the first; infinite where one is not
        finite."""
        many = slice(1) if first else slice(None)
        names = [port.name for port in self._plan.outputs]
        results = [self._run(names, self.rounded.feeds(feeds, wide)) for feeds in self._inputs[many]]
        found = compare_outputs(self._plan, self._tolerances, self._growth, results, self._expected[many])
        return _used(found)


def _used(found: ComparedOutputs) -> float:
    """Above 1 where an output departs."""
    used = 0.0
    for output in found.outputs:
        if output.not_finite or not output.error < float("inf"):
            return float("inf")
        parts = [output.error / output.tolerance]
        if output.allowed is None and output.rms_tolerance:
            parts.append(output.rms / output.rms_tolerance)
        used = max(used, *(parts if output.tells or not output.ok else [0.0]))
        used = max(used, 0.0 if output.ok else 1.0 + 1e-9)
    return used


def propose(
    reference: Reference,
    plan: BatchPlan,
    samples: Samples,
    tolerances: Tolerances,
    departed: Mapping[int, float],
    say: Callable[[str], None],
) -> Proposal:
    """The fewest layers of one batch to keep wide. `departed` are steps of the plan that the engine's run has shown to
    exceed the recipe's tolerance, by as many times. Raises BoltError where the model cannot be rounded ("not-rounded")
    or does not run."""
    trials = _Trials(reference, plan, samples, tolerances)
    layers = trials.rounded.layers
    largest = _beyond(trials.rounded, trials.sizes())
    errors = {step: error for step, error in departed.items() if step in layers}
    must = frozenset({*largest, *errors})
    before = trials.used(frozenset())
    least = trials.used(must) if must else before
    if least <= 1.0:
        return _proposal(plan, trials, (largest, errors, {}), must, before, least)
    everything = frozenset(layers)
    shares: dict[int, float] = {}
    for done, step in enumerate(sorted(everything - must)):
        say(f"rounding '{layers[step].name}' alone, {done + 1} of {len(everything - must)}")
        shares[step] = trials.used(everything - {step}, first=True)
    most_first = sorted(shares, key=lambda step: (-shares[step], step))
    count = _least(len(most_first), lambda many: trials.used(must | set(most_first[:many])) <= 1.0)
    wide = must | set(most_first[:count])
    for step in reversed(most_first[: count - 1]):
        if trials.used(wide - {step}) <= 1.0:
            wide -= {step}
    return _proposal(plan, trials, (largest, errors, shares), frozenset(wide), before, trials.used(frozenset(wide)))


def _least(most: int, passes: Callable[[int], bool]) -> int:
    """The least count up to `most` that passes, where more never do worse; `most` where none does."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle
    return high


def _beyond(rounded: RoundedModel, sizes: Mapping[str, float]) -> dict[int, float]:
    """The layers that leave or read numbers beyond their half type, with the largest of them. What hides keys of
    attention is none."""
    found: dict[int, float] = {}
    for tensor, size in sizes.items():
        maker = rounded.maker(tensor)
        for step in (*rounded.readers(tensor), *(() if maker is None else (maker,))):
            if LARGEST[rounded.layers[step].narrow] < size < MASK:
                found[step] = max(size, found.get(step, 0.0))
    return found


def _proposal(
    plan: BatchPlan,
    trials: _Trials,
    reasons: tuple[Mapping[int, float], Mapping[int, float], Mapping[int, float]],
    wide: frozenset[int],
    before: float,
    used: float,
) -> Proposal:
    """`reasons`: the largest number, the error and the share of each layer."""
    layers = trials.rounded.layers
    found = tuple(WideLayer(layers[step], *(each.get(step, 0.0) for each in reasons)) for step in sorted(wide))
    return Proposal(plan.batch, len(layers), found, before, used, used <= 1.0)
