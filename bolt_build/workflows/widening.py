"""Which layers of a built engine to keep wide, what that costs, and the patch of the recipe that says so."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bolt_build.build.planning.engine_file import read_engine
from bolt_build.build.planning.engine_from_model import parse, plan_parsed
from bolt_build.emit.weights import payload_bytes
from bolt_build.families import load
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, Step
from bolt_build.schema.recipe import LayerSpec, Recipe
from bolt_build.targets import Target, target_named
from bolt_build.verify.reference import Reference
from bolt_build.verify.report import VerifyReport
from bolt_build.verify.samples import Samples
from bolt_build.verify.tolerance import Tolerances
from bolt_build.verify.wide_layers import Proposal, propose
from bolt_build.workflows.built import BuiltEngine

WIDE = "fp32"
"""The precision that wide layers are given."""


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a run of the batch, and bytes of the weights, before and after."""

    seconds: tuple[float, float]
    weights: tuple[int, int]


@dataclass(frozen=True)
class Widening:
    """What is proposed for one engine. `keys` are the globs of the recipe's `layers`, `patch` a unified diff of the
    recipe (empty where nothing is to be widened, or the recipe's `layers` are written so that none could be made), and
    `left` the layers that would still have to be wide in the engine with them."""

    target: str
    precision: str
    proposal: Proposal
    keys: tuple[str, ...]
    cost: Cost | None
    patch: str
    left: tuple[str, ...]


def widen(recipe: Recipe, engine: BuiltEngine, report: VerifyReport | None, say: Callable[[str], None]) -> Widening:
    """The fewest layers of `engine` to keep wide until it passes: of the first batch that departs in its `report`, or
    where there is none, for it does not run here, of its least. Raises BoltError where onnxruntime does not run the
    model."""
    plan = read_engine(engine.directory.engine.read_text(encoding="utf-8"))
    wrong = next((batch for batch in report.batches if not batch.ok), None) if report is not None else None
    of = min(each.batch for each in plan.plans) if wrong is None else wrong.batch
    (chosen,) = (each for each in plan.plans if each.batch == of)
    departed = {
        layer.step: layer.error / layer.tolerance
        for layer in (() if wrong is None else wrong.layers)
        if not layer.ok and layer.tolerance and not layer.not_finite
    }
    allowed = tuple((layer.match, layer.tolerance) for layer in recipe.layers if layer.tolerance is not None)
    reference = Reference(engine.model, recipe.model.dims)
    tolerances = Tolerances(recipe.verify.tolerance, allowed)
    samples = Samples(recipe.verify)
    proposal = propose(reference, chosen, samples, tolerances, departed, say)
    if not proposal.wide:
        return Widening(engine.target, plan.precision, proposal, (), None, "", ())

    def again(own: BatchPlan) -> Proposal:
        return propose(reference, own, samples, tolerances, {}, say)

    keys, changed, left = _keys(recipe, engine, proposal, chosen, again)
    before, target = _planned(recipe, engine), target_named(engine.target)
    cost = Cost(
        (predicted_seconds(before, target, chosen.batch), predicted_seconds(changed, target, chosen.batch)),
        (payload_bytes(before.weights), payload_bytes(changed.weights)),
    )
    return Widening(engine.target, plan.precision, proposal, keys, cost, _patch(Path(recipe.path), keys), left)


_TRIES = 4
"""Where layers are wide, others are other steps than before, which may have to be wide too."""


def _keys(
    recipe: Recipe, engine: BuiltEngine, proposal: Proposal, own: BatchPlan, again: Callable[[BatchPlan], Proposal]
) -> tuple[tuple[str, ...], EnginePlan, tuple[str, ...]]:
    """The fewest globs that make the layers of the plan `own` wide, and what else of the plan with them has to be; that
    plan; and what of it would still have to be wide. `again` proposes for another plan."""
    taken, keys = {layer.match for layer in recipe.layers}, tuple[str, ...]()
    for _ in range(_TRIES):
        views = _views_between(own, {each.layer.step for each in proposal.wide})
        names = (*(each.layer.own for each in proposal.wide), *(view.covers[0] for view in views if view.covers))
        keys = tuple(dict.fromkeys((*keys, *(_glob(name, taken) for name in names))))
        layers = (*recipe.layers, *(LayerSpec(key, precision=WIDE) for key in keys))
        changed = _planned(replace(recipe, layers=layers), engine)
        (own,) = (each for each in changed.plans if each.batch == own.batch)
        proposal = again(own)
        if not proposal.wide:
            break
    return keys, changed, tuple(each.layer.name for each in proposal.wide)


def _views_between(plan: BatchPlan, wide: set[int]) -> tuple[Step, ...]:
    """Steps that only give what a wide one leaves another shape, for a wide one: in half precision they would round."""
    makers = {tensor.value: step for step in plan.steps for tensor in step.outputs}
    found: dict[int, Step] = {}
    for step in plan.steps:
        passed: list[Step] = []
        maker = makers.get(step.inputs[0].value) if step.index in wide and step.inputs else None
        while maker is not None and maker.view:
            passed.append(maker)
            maker = makers.get(maker.inputs[0].value)
        if maker is not None and maker.index in wide:
            found.update((view.index, view) for view in passed)
    return tuple(found.values())


def predicted_seconds(plan: EnginePlan, target: Target, batch: int) -> float:
    """What the steps of a batch are predicted to take, one after the other."""
    families = {family.name: family for family in load(target)}
    return sum(
        families[step.candidate.family].predict(step.problem, step.candidate, target)
        for each in plan.plans
        if each.batch == batch
        for step in each.steps
        if not step.view
    )


def _planned(recipe: Recipe, engine: BuiltEngine) -> EnginePlan:
    """By prediction, so that what was measured of one of two plans does not tell them apart."""
    (spec,) = (spec for spec in recipe.targets if spec.name == engine.target)
    return plan_parsed(parse(engine.model), recipe, spec, target_named(spec.name)).plan


def _glob(name: str, taken: set[str]) -> str:
    """A glob that matches the name alone, and is none of those `taken`."""
    found = re.sub(r"([*?\[])", r"[\1]", name)
    return f"[{name[0]}]{found[1:]}" if found in taken else found


def _patch(path: Path, keys: tuple[str, ...]) -> str:
    """A unified diff of the recipe with those layers wide; empty where `layers` is written in a way that is not
    changed line by line."""
    before = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if before and not before[-1].endswith("\n"):
        before[-1] += "\n"
    entries = [f'  "{_quoted(key)}": {{precision: {WIDE}}}\n' for key in keys]
    at = next((number for number, line in enumerate(before) if re.match(r"layers\s*:", line)), None)
    if at is None:
        after = [*before, "layers:\n", *entries]
    elif re.match(r"layers\s*:\s*(#.*)?$", before[at].rstrip("\n")):
        end = at + 1
        while end < len(before) and (not before[end].strip() or before[end][0] in " #"):
            end += 1
        while not before[end - 1].strip():
            end -= 1
        own = next((line for line in before[at + 1 : end] if line.strip() and not line.lstrip().startswith("#")), "  ")
        indent = own[: len(own) - len(own.lstrip())]
        after = [*before[:end], *(f"{indent}{entry.lstrip()}" for entry in entries), *before[end:]]
    else:
        found = re.match(r"(layers\s*:\s*\{)(.*)(\}\s*(#.*)?)$", before[at].rstrip("\n"))
        if found is None:
            return ""
        own, more = found[2].rstrip(), ", ".join(entry.strip() for entry in entries)
        after = [*before[:at], f"{found[1]}{own}{', ' if own.strip() else ''}{more}{found[3]}\n", *before[at + 1 :]]
    name = path.name
    return "".join(difflib.unified_diff(before, after, name, name))


def _quoted(text: str) -> str:
    """The inside of a double-quoted scalar of YAML."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
