"""What is worth measuring for an engine: problems of its search spaces, and for each the candidates to compile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from bolt_build.families.base import Alternative, Candidate, Family, KernelProblem, Refusal, TensorFormat
from bolt_build.families.reason import Reason
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.space import SearchSpace, problems_of
from bolt_build.sizes import sizes_of
from bolt_build.targets import Target
from bolt_build.tuning.trials.detours import detours
from bolt_build.tuning.trials.shared_kernels import choose

HOPELESS = 4.0
"""An alternative predicted to take so many times what its region's best takes is not measured: predictions are not so
far off."""

LEADS = 1.35
"""The first of a group of kernels is tried where it is predicted to take so many times what the fastest takes at most:
predictions are less sure of groups than of kernels of one group (`families/cutlass/ranking.py`)."""


@dataclass(frozen=True)
class Trial:
    """One candidate to measure. `of`: the trial (its index in the problem) whose settings this one changes, None for a
    trial of the first stage. `predicted` is in seconds."""

    candidate: Candidate
    predicted: float
    of: int | None = None


@dataclass(frozen=True)
class ProblemTrials:
    """A problem, where it occurs ("batch 32: /layer1/0/conv1"), its trials (of the first stage first, each in the
    order of predicted speed), and why other candidates are not among them."""

    problem: KernelProblem
    occurs: tuple[str, ...]
    trials: tuple[Trial, ...]
    refusals: tuple[Refusal, ...]

    def changes(self, trial: Trial) -> int:
        """Settings in which a trial differs from the one that it varies; 0 of the first stage."""
        if trial.of is None:
            return 0
        varied = self.trials[trial.of].candidate.settings
        return sum(setting not in varied for setting in trial.candidate.settings)


@dataclass(frozen=True)
class TuningSet:
    """Everything to measure for one target, by problem digest in its order; `refusals`: problems left out, and why."""

    target: str
    problems: tuple[ProblemTrials, ...]
    refusals: tuple[Refusal, ...]


def tuning_set(
    spaces: Sequence[SearchSpace],
    families: Sequence[Family],
    target: Target,
    limit: int,
    locked: Mapping[str, Candidate] = MappingProxyType({}),
) -> TuningSet:
    """The problems of the spaces' alternatives, conversions and copies, each with `limit` candidates that the
    prediction puts first over all families that offer it (`shared_kernels`), and the variants of these. What a family
    puts in front of faster ones, the first of a group of kernels, is tried too where it is not far behind (`LEADS`).
    What a lock has for a problem (`locked`, by the problem's digest) is tried again wherever prediction puts it, so
    that tuning once more forgets nothing.

    Left out, with a reason: what only hopeless alternatives need. A problem with a single candidate stays: what it
    takes decides between covers.
    """
    needs = _Needs(target)
    for space in spaces:
        needs.add(space)
    by_name = {family.name: family for family in families}
    wanted = sorted(needs.occurs, key=lambda each: each.digest)
    offers = [
        {
            family.name: needs.wanted[family.name, problem]
            for family in families
            if (family.name, problem) in needs.wanted
        }
        for problem in wanted
    ]
    ranked = [_ranked(problem, offer, by_name, target) for problem, offer in zip(wanted, offers, strict=True)]

    @cache
    def units(problem: int, place: int) -> tuple[str, ...]:
        candidate = ranked[problem][place].candidate
        return tuple(unit.name for unit in by_name[candidate.family].units([(wanted[problem], candidate)], target))

    chosen = choose([[trial.predicted for trial in ranking] for ranking in ranked], limit, units)
    chosen = tuple(
        _with_locked(_with_leaders(places, ranking, offer, limit), ranking, locked.get(problem.digest))
        for places, ranking, offer, problem in zip(chosen, ranked, offers, wanted, strict=True)
    )
    problems = []
    for index, problem in enumerate(wanted):
        hopeless = tuple(needs.hopeless[key] for key in needs.hopeless if key[1] == problem and key not in needs.wanted)
        illegal = [each for name in offers[index] for each in by_name[name].candidates(problem, target)[1]]
        beyond = _beyond(ranked[index], chosen[index], limit)
        trials = _trials(problem, [ranked[index][place] for place in chosen[index]], by_name, target)
        refusals = (*illegal, *beyond, *hopeless)
        problems.append(ProblemTrials(problem, tuple(needs.occurs[problem]), trials, refusals))
    left_out = (
        Refusal(refusal.family, describe_problem(problem), refusal.reason)
        for (_, problem), refusal in needs.hopeless.items()
        if problem not in needs.occurs
    )
    return TuningSet(target.name, tuple(problems), tuple(dict.fromkeys(left_out)))


@dataclass
class _Needs:
    """`wanted`: the candidates of each (family, problem) that an alternative with hope, a conversion or a copy needs;
    `hopeless`: why those of others are not measured; `occurs`: where each wanted problem occurs."""

    target: Target
    wanted: dict[tuple[str, KernelProblem], tuple[Candidate, ...]] = field(default_factory=dict)
    hopeless: dict[tuple[str, KernelProblem], Refusal] = field(default_factory=dict)
    occurs: dict[KernelProblem, dict[str, None]] = field(default_factory=dict)

    def add(self, space: SearchSpace) -> None:
        choices = {(choice.family, choice.problem): choice.candidates for choice in space.choices}
        offering: dict[KernelProblem, list[str]] = {}
        for name, problem in choices:
            offering.setdefault(problem, []).append(name)
        kept, batch = [], str(sizes_of(space.graph))
        for alternative, reason in _without_detours(space, tuple(_judged(space, self.target))):
            keys = [(alternative.family, problem) for problem in problems_of(alternative)]
            if reason is None:
                kept.append(alternative)
                for key in keys:
                    self._want(key[1], f"{batch}: {alternative.region[-1]}")
                    self.wanted[key] = choices[key]
            else:
                for key in keys:
                    self.hopeless.setdefault(key, Refusal(alternative.family, "every candidate", reason))
        for problem, place in (*_conversions(space, kept), *_copies(space)):
            self._want(problem, f"{batch}: {place}")
            for name in offering[problem]:
                self.wanted[name, problem] = choices[name, problem]

    def _want(self, problem: KernelProblem, place: str) -> None:
        self.occurs.setdefault(problem, {})[place] = None


def _judged(space: SearchSpace, target: Target) -> Iterator[tuple[Alternative, str | None]]:
    """Every alternative, with the reason why it is hopeless or None.

    The best of a region is its fastest alternative or, for several nodes, those of the nodes one by one. What takes
    less than a launch is not told apart: beside a view, which takes nothing, every kernel would be hopeless.
    """
    best: dict[tuple[str, ...], Alternative] = {}
    for alternative in space.alternatives:
        known = best.get(alternative.region)
        if known is None or alternative.seconds < known.seconds:
            best[alternative.region] = alternative
    for alternative in space.alternatives:
        least, by = best[alternative.region].seconds, best[alternative.region].family
        alone = [best[name,] for name in alternative.region if (name,) in best]
        if len(alone) == len(alternative.region) > 1 and sum(a.seconds for a in alone) < least:
            least, by = sum(a.seconds for a in alone), "one kernel a node"
        if alternative.seconds <= HOPELESS * max(least, target.launch_seconds):
            yield alternative, None
        else:
            over = f"over {HOPELESS:g} times the {least * 1e6:.1f} us of {by}"
            yield alternative, f"predicted {alternative.seconds * 1e6:.1f} us, {over}"


def _without_detours(
    space: SearchSpace, judged: Sequence[tuple[Alternative, str | None]]
) -> Iterator[tuple[Alternative, str | None]]:
    """The same with a reason for those with hope that are detours."""
    hopeful = [alternative for alternative, reason in judged if reason is None]
    found = detours(space, hopeful)
    why = {id(hopeful[at]): reason for at, reason in found.items()}
    for alternative, reason in judged:
        yield alternative, reason or why.get(id(alternative))


def _conversions(space: SearchSpace, kept: Sequence[Alternative]) -> Iterator[tuple[KernelProblem, str]]:
    """Conversions to a format that an alternative that is kept, or the caller, asks of a value; and of which value."""
    asked: dict[str, set[TensorFormat]] = {}
    held: dict[str, set[TensorFormat]] = {}
    for name, format in space.wanted:
        asked.setdefault(name, set()).add(format)
    for name, format in space.fixed:
        held.setdefault(name, set()).add(format)
    for step in (step for alternative in kept for step in alternative.steps):
        for name, operand in zip(step.inputs, step.problem.inputs, strict=True):
            asked.setdefault(name, set()).add(operand.format)
        for name, operand in zip(step.outputs, step.problem.outputs, strict=True):
            held.setdefault(name, set()).add(operand.format)
    for conversion in space.conversions:
        for name, formats in asked.items():
            # What a constant's reader asks for stands in the table of weights; a value that was converted can be again.
            # Nor is a value converted that only stands between the steps of one alternative.
            if name not in held or not space.graph.has(name) or space.graph.type(name).shape != conversion.shape:
                continue
            if conversion.to in formats and conversion.source in held[name] | formats:
                yield conversion.problem, f"{name} to {conversion.to}"


def _copies(space: SearchSpace) -> Iterator[tuple[KernelProblem, str]]:
    for copy in space.copies:
        for name, format in space.wanted:
            if format == copy.to and space.graph.type(name).shape == copy.shape:
                yield copy.problem, f"output {name}"


def _ranked(
    problem: KernelProblem, offers: dict[str, tuple[Candidate, ...]], families: dict[str, Family], target: Target
) -> list[Trial]:
    """All candidates in the order of predicted speed. Equal predictions keep the families' order."""
    every = (
        Trial(each, families[name].predict(problem, each, target)) for name, found in offers.items() for each in found
    )
    return sorted(every, key=lambda trial: trial.predicted)


def _with_leaders(
    places: tuple[int, ...], ranking: Sequence[Trial], offer: Mapping[str, Sequence[Candidate]], limit: int
) -> tuple[int, ...]:
    """The places, and those of what families offer among their first `limit` though faster ones by prediction are
    behind, where it is not far behind the fastest of all."""
    at = {trial.candidate: place for place, trial in enumerate(ranking)}
    leading = [
        at[each]
        for found in offer.values()
        for each in found[:limit]
        if at[each] > min((at[other] for other in found[limit:]), default=len(ranking))
    ]
    near = [place for place in leading if ranking[place].predicted <= LEADS * ranking[0].predicted]
    return tuple(sorted({*places, *near}))


def _with_locked(places: tuple[int, ...], ranking: Sequence[Trial], locked: Candidate | None) -> tuple[int, ...]:
    """The places, and that of the locked candidate's kernel. There is none where the kernel is no longer legal."""
    if locked is None or any(ranking[place].candidate.compiled == locked.compiled for place in places):
        return places
    found = (at for at, trial in enumerate(ranking) if trial.candidate.compiled == locked.compiled)
    return tuple(sorted((*places, *(at for at in [next(found, None)] if at is not None))))


def _trials(
    problem: KernelProblem, first: Sequence[Trial], families: dict[str, Family], target: Target
) -> tuple[Trial, ...]:
    """The trials of the first stage and their variants."""
    variants = (
        Trial(each, families[trial.candidate.family].predict(problem, each, target), index)
        for index, trial in enumerate(first)
        for each in families[trial.candidate.family].variants(problem, trial.candidate, target)
    )
    return (*first, *sorted(variants, key=lambda trial: trial.predicted))


def _beyond(ranked: Sequence[Trial], chosen: Sequence[int], limit: int) -> list[Refusal]:
    """Why the candidates that were not chosen are not tried."""
    refusals = []
    for at, trial in enumerate(ranked):
        if at in chosen:
            continue
        why = f"the first {limit} are tried"
        if at < limit:
            why = "others hardly slower are tried, whose kernels are needed anyway"
        place = round(trial.predicted * 1e6, 1), at + 1, len(ranked)
        reason = Reason(f"predicted {{}} us, in place {{}} of {{}}: {why}", *place)
        refusals.append(Refusal(trial.candidate.family, str(trial.candidate), reason))
    return refusals
