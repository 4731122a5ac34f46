"""A search space with what was measured in it: winners instead of candidates, measured seconds instead of predicted.

A kernel problem that was measured has one candidate left, its winner. An alternative that asks another family for it,
or that was not measured where others of the same nodes were, is refused: a prediction does not compete with a
measurement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from bolt_build.digest import digest, encode
from bolt_build.families.base import Alternative, Candidate, Family, KernelProblem, Refusal, TensorFormat
from bolt_build.graph.ir import Layout
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.kernel_sources import Declined
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import ChosenAlternative, ChosenCover, EngineChoice, Selection, Winner
from bolt_build.planner.space import Choice, Conversion, SearchSpace, problems_of
from bolt_build.planner.structure import graph_digest
from bolt_build.sizes import sizes_of
from bolt_build.targets import Target

Winners = Mapping[KernelProblem, Winner]
_OTHER_GRAPH, _OTHER_FORMS = "it was found for another graph", "it was found for inputs and outputs of other forms"


def selected_space(
    space: SearchSpace, selection: Selection, target: Target, families: Sequence[Family]
) -> tuple[SearchSpace, Winners]:
    """The space as the selection leaves it, and the winners that hold in it by their problem.

    A winner that its family does not name any more is declined, and so is a cover that was found for another graph or
    with alternatives that are there no longer, and the choice of a whole engine where its cover or a winner of its plan
    is; decisions say so, and `declined` of the space has what is said of the whole.
    """
    winners, declined = _legal(space, selection.winners, selection, target, families)
    gone = {winner.problem for winner in selection.winners} - {problem.digest for problem in winners}
    choice = _choice(space, selection)
    swaps = {} if choice is None else _legal(space, choice.swaps, selection, target, families)[0]
    if winners:
        space = _with_winners(space, winners)
    covered, holds = _as_covered(replace(space, decisions=(*space.decisions, *declined)), selection)
    if choice is None:
        return covered, winners
    return _as_engine(covered, choice, winners, swaps, gone, selection.source, cover_holds=holds)


def chosen_cover(space: SearchSpace, alternatives: Sequence[Alternative]) -> ChosenCover:
    """A cover of the space's graph in the form that a lock keeps."""
    chosen = tuple(_chosen(alternative) for alternative in alternatives)
    return ChosenCover(digest_of(space), space.graph.batch, chosen, space.graph.dims)


def digest_of(space: SearchSpace) -> str:
    """What a cover of the space was found for: the graph, and the forms in which the caller gives and takes tensors
    where these are not the model's own."""
    graph = space.graph
    borders = (*space.fixed, *space.wanted)
    if all(format == TensorFormat(graph.type(name).dtype, Layout.ROW) for name, format in borders):
        return graph_digest(graph)
    return digest([graph_digest(graph), encode(borders)])


def _chosen(alternative: Alternative) -> ChosenAlternative:
    problems = tuple(step.problem.digest for step in alternative.steps)
    return ChosenAlternative(alternative.region, alternative.family, problems)


def _legal(
    space: SearchSpace, found: Sequence[Winner], selection: Selection, target: Target, families: Sequence[Family]
) -> tuple[Winners, tuple[Decision, ...]]:
    """Winners that their family still names, and a decision for each that it does not."""
    by_digest = {winner.problem: winner for winner in found}
    by_name = {family.name: family for family in families}
    choices = {(choice.family, choice.problem): choice for choice in space.choices}
    winners, declined = {}, []
    for problem in dict.fromkeys(choice.problem for choice in space.choices):
        winner = by_digest.get(problem.digest)
        if winner is None:
            continue
        choice = choices.get((winner.candidate.family, problem))
        if choice is not None and not selection.stated:
            winner = replace(winner, candidate=stated(winner.candidate, choice.candidates))
        candidate = winner.candidate
        if choice is not None and by_name[candidate.family].refuse(problem, candidate, target) is None:
            winners[problem] = winner
        else:
            reason = f"{selection.source} names a kernel that is none of its family's candidates any more"
            declined.append(Decision("tuning", describe_problem(problem), f"declined {candidate}", reason))
    return winners, tuple(declined)


def stated(candidate: Candidate, offered: Sequence[Candidate]) -> Candidate:
    """The candidate with the settings that it left to a prediction: those of its family's own with the same kernel."""
    if candidate.settings:
        return candidate
    return next((each for each in offered if each.compiled == candidate), candidate)


def _with_winners(space: SearchSpace, winners: Winners) -> SearchSpace:
    refusals: list[Refusal] = []
    kept = []
    for alternative, reason in _judged(space, winners):
        if reason is None:
            kept.append(_timed(alternative, winners))
        else:
            refusals.append(Refusal(alternative.family, ", ".join(alternative.region), reason))
    every = all(problem in winners for alternative in kept for problem in problems_of(alternative))
    return replace(
        space,
        alternatives=tuple(kept),
        conversions=tuple(_converted(each, winners) for each in space.conversions),
        copies=tuple(_converted(each, winners) for each in space.copies),
        choices=tuple(_won(choice, winners) for choice in space.choices),
        refusals=(*space.refusals, *dict.fromkeys(refusals)),
        basis="measured" if every else "measured and predicted",
    )


def _judged(space: SearchSpace, winners: Winners) -> Iterator[tuple[Alternative, str | None]]:
    """Every alternative, with the reason why it does not stand beside what was measured, or None."""
    offered = {
        (alternative.region, alternative.family, problem)
        for alternative in space.alternatives
        for problem in problems_of(alternative)
    }
    slower = {}
    for index, alternative in enumerate(space.alternatives):
        for problem in problems_of(alternative):
            family = winners[problem].candidate.family if problem in winners else alternative.family
            # The winner's family must be able to take the alternative's place.
            if family != alternative.family and (alternative.region, family, problem) in offered:
                slower[index] = f"{family} has the fastest kernel that was measured"
    measured = {
        alternative.region
        for index, alternative in enumerate(space.alternatives)
        if index not in slower and _all_measured(alternative, winners)
    }
    for index, alternative in enumerate(space.alternatives):
        if index in slower:
            yield alternative, slower[index]
        elif _all_measured(alternative, winners):
            yield alternative, None
        elif alternative.region in measured or all((name,) in measured for name in alternative.region):
            yield alternative, "not measured, unlike another way to compute the same nodes"
        else:
            yield alternative, None


def _all_measured(alternative: Alternative, winners: Winners) -> bool:
    """True where every kernel is a winner of the alternative's own family; a view has none."""
    found = (winners.get(problem) for problem in problems_of(alternative))
    return all(winner is not None and winner.candidate.family == alternative.family for winner in found)


def _timed(alternative: Alternative, winners: Winners) -> Alternative:
    """With measured seconds where all of it was measured."""
    problems = problems_of(alternative)
    if not problems or not _all_measured(alternative, winners):
        return alternative
    return replace(alternative, seconds=sum(winners[problem].seconds for problem in problems))


def _won(choice: Choice, winners: Winners) -> Choice:
    winner = winners.get(choice.problem)
    if winner is None or winner.candidate.family != choice.family:
        return choice
    return replace(choice, candidates=(winner.candidate,))


def _converted(conversion: Conversion, winners: Winners) -> Conversion:
    """A conversion done by its winner, whichever family that is of."""
    winner = winners.get(conversion.problem)
    if winner is None:
        return conversion
    return replace(conversion, family=winner.candidate.family, seconds=winner.seconds)


def _as_covered(space: SearchSpace, selection: Selection) -> tuple[SearchSpace, bool]:
    """The space with the alternatives of the selection's cover alone, where it has one for this graph that holds, and
    whether it does."""
    none = "it has none for this batch" if not space.graph.dims else f"it has none for {sizes_of(space.graph)}"
    if not selection.covers:  # of records, or of predictions: there is nothing to decide about
        return (_declining(space, "cover", none) if selection.winners else space), False
    subject, action = str(sizes_of(space.graph)), f"declined the cover of {selection.source}"
    here = digest_of(space)
    cover = next((c for c in selection.covers if (c.graph, c.batch) == (here, space.graph.batch)), None)
    if cover is None:
        inside = _inside(space, selection)
        if inside is not None:
            return inside, False
        reason = none
        if any(sizes_of(other) == sizes_of(space.graph) for other in selection.covers):
            reason = _OTHER_GRAPH
            if any(other.graph == graph_digest(space.graph) for other in selection.covers):
                reason = _OTHER_FORMS
        decision = Decision("tuning", subject, action, reason)
        return _declining(replace(space, decisions=(*space.decisions, decision)), "cover", reason), False
    kept = tuple(a for a in space.alternatives if _chosen(a) in cover.alternatives)
    covered = {name for alternative in kept for name in alternative.region}
    gone = [each for each in cover.alternatives if each not in {_chosen(a) for a in kept}]
    if gone or any(node.name not in covered for node in space.graph.nodes):
        what = f"{gone[0].family} for {', '.join(gone[0].region)}" if gone else "every node"
        reason = f"no family offers {what} as it was chosen"
        decision = Decision("tuning", subject, action, reason)
        return _declining(replace(space, decisions=(*space.decisions, decision)), "cover", reason), False
    taken = Decision("tuning", subject, f"took the cover of {selection.source}", "it was found for this graph")
    return replace(space, alternatives=kept, decisions=(*space.decisions, taken)), True


def _inside(space: SearchSpace, selection: Selection) -> SearchSpace | None:
    """The space with the alternatives of the cover that the whole engine was measured to be faster with, in the model's
    own forms, and with all for the nodes that are computed otherwise where the caller has other forms. None where no
    such plan was measured: the winners lead to the same alternatives then, but where other forms make others cheaper.
    """
    key = (graph_digest(space.graph), space.graph.batch)
    if not any(each.other_plan and (each.graph, each.batch) == key for each in selection.engines):
        return None
    cover = next((each for each in selection.covers if (each.graph, each.batch) == key), None)
    if cover is None:
        return None
    kept = tuple(a for a in space.alternatives if _chosen(a) in cover.alternatives)
    covered = {name for alternative in kept for name in alternative.region}
    others = tuple(a for a in space.alternatives if covered.isdisjoint(a.region))
    left = [node.name for node in space.graph.nodes if node.name not in covered]
    if not kept or not set(left) <= {name for alternative in others for name in alternative.region}:
        return None
    action, reason = f"took the cover of {selection.source}", f"{_OTHER_FORMS}, in which its engine was faster with it"
    if left:
        action += f" but for {left[0]}{f' and {len(left) - 1} more' if len(left) > 1 else ''}"
    decision = Decision("tuning", str(sizes_of(space.graph)), action, reason)
    inside = replace(space, alternatives=(*kept, *others), decisions=(*space.decisions, decision))
    nodes = f"{len(left)} node{'s' if len(left) > 1 else ''}"
    return _declining(inside, "cover", f"{_OTHER_FORMS}, and is taken but for {nodes}") if left else inside


def _choice(space: SearchSpace, selection: Selection) -> EngineChoice | None:
    """The selection's choice of kernels for the whole engine of this batch: of this graph in the caller's forms if it
    has one, else in the model's own, else of another."""
    swapping = [each for each in selection.engines if each.batch == space.graph.batch and each.swaps]
    for graph in (digest_of(space), graph_digest(space.graph)):
        if (own := next((each for each in swapping if each.graph == graph), None)) is not None:
            return own
    return next((each for each in swapping if sizes_of(each) == sizes_of(space.graph)), None)


def _as_engine(
    space: SearchSpace,
    choice: EngineChoice,
    winners: Winners,
    swaps: Winners,
    gone: Collection[str],
    source: str,
    *,
    cover_holds: bool,
) -> tuple[SearchSpace, Winners]:
    """The space and winners with the kernels that the whole engine was measured to be faster with; `swaps` are those
    that their families still name, `gone` the problems whose winners do not hold here.

    They are taken all or none: they were measured together, in the plan that the selection's cover and winners give.
    Costs stay those of the winners, so that they lead to that plan again. Where the caller has other forms than the
    model's own, for which they were measured, they have the same neighbours but at the border, where the cover does
    not hold.
    """
    subject = str(sizes_of(space.graph))
    reason, own = "", choice.graph == digest_of(space)
    if not own and choice.graph != graph_digest(space.graph):
        reason = "they were measured in another graph"
    elif own and not cover_holds:
        reason = "they were measured with its cover"
    elif len(swaps) != len(choice.swaps) or not all(_replaces(swap, winners.get(of)) for of, swap in swaps.items()):
        reason = "not all of its kernels, and of the winners that they replace, are there any more"
    elif any(problem.digest in gone for problem in _problems(space)):
        reason = "not all winners for its cover and its conversions are there any more"
    if reason:
        decision = Decision("tuning", subject, f"declined the whole engine's kernels of {source}", reason)
        return _declining(replace(space, decisions=(*space.decisions, decision)), "engine", reason), winners
    times = (
        f"the engine takes {choice.after * 1e6:.1f} us with them, not {choice.before * 1e6:.1f} us "
        f"({1 - choice.after / choice.before:.1%} less){'' if own else ', with inputs and outputs of other forms'}"
    )
    count = f"{len(swaps)} kernel{'s' if len(swaps) > 1 else ''}"
    taken = [Decision("tuning", subject, f"took {count} of the whole engine's choice in {source}", times)]
    for problem, swap in swaps.items():
        reason = f"with it the whole engine was faster; alone it takes {swap.seconds * 1e6:.2f} us"
        action = f"took {swap.candidate} in place of {winners[problem].candidate}"
        taken.append(Decision("tuning", describe_problem(problem), action, reason))
    choices = tuple(_won(each, swaps) for each in space.choices)
    return replace(space, choices=choices, decisions=(*space.decisions, *taken)), {**winners, **swaps}


def _declining(space: SearchSpace, what: str, reason: str) -> SearchSpace:
    return replace(space, declined=(*space.declined, Declined(what, space.graph.batch, reason, space.graph.dims)))


def _problems(space: SearchSpace) -> set[KernelProblem]:
    """What a plan of the space can launch."""
    found = {problem for alternative in space.alternatives for problem in problems_of(alternative)}
    return found | {each.problem for each in (*space.conversions, *space.copies)}


def _replaces(swap: Winner, winner: Winner | None) -> bool:
    """True where the plan around the winner, made for its family's formats, is that which the swap was measured in."""
    return winner is not None and winner.candidate.family == swap.candidate.family
