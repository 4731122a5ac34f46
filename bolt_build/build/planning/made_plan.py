"""What a target's tasks read, and the tasks: made for a plan that is new, or for one whose sources or tools changed.

It loads NumPy, onnx and families: a build that finds nothing changed imports none of this.
"""

from __future__ import annotations

import json
import sys

from bolt_build.build.files import read_text
from bolt_build.build.own_code.own_sources import PACKAGE
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.emission import emitted_sources
from bolt_build.build.planning.engine_file import ENGINE, read_engine
from bolt_build.build.planning.engine_parts import families_of, used_families, used_packages
from bolt_build.build.planning.plan_file import PLAN_FILE_VERSION, EngineSummary, Places, PlanFile, UnitSummary
from bolt_build.build.planning.prepared_target import PreparedTarget, PreparedWeights
from bolt_build.build.planning.provenance_file import PROVENANCE
from bolt_build.build.planning.question import Question, engine_facts
from bolt_build.build.planning.task_graph import places_of, task_graph
from bolt_build.digest import digest, encode
from bolt_build.emit.engine import kernel_units, source_names
from bolt_build.emit.manifest import BuildFacts, ResolvedTool, embedded_manifest
from bolt_build.emit.weights import payload_bytes, weights_content
from bolt_build.families import load
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.planner.padded_dims import exact_lengths
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.runtime.names import weights as weights_name
from bolt_build.targets import Target

_UNSAID = (("policy.padding.mode", '"auto"'), ("policy.padding.alignment", "8"), ("policy.skip", "[]"))
"""Defaults of keys that came later: engines of recipes without them are what they were."""


def tasks_of(asked: Question, planned: PlannedEngine | None) -> PreparedTarget:
    """Tasks, and all that they read, for a plan that was just made, or (None) for the one in the directory.

    `notes` are what a new plan gives to say."""
    target, directory, model = asked.target, asked.directory, asked.model
    text = read_text(directory.engine) if planned is None else _text(planned.plan)
    engine = read_engine(text) if planned is None else planned.plan
    summary = _summary(engine, target)
    verified = asked.elsewhere is None and asked.unverified is None
    context = BuildContext(asked.recipe, target, families_of(summary, target), asked.tools, summary, model, verified)
    places = places_of(context, directory.path, sys.executable, PACKAGE)
    facts = _build_facts(asked)
    contents = (
        (ENGINE, text),
        (PROVENANCE, embedded_manifest(engine, target, facts)),
        ("recipe.json", _text(asked.recipe)),
        ("selection.json", _text(asked.lock.relevant(asked.use))),
        *emitted_sources(engine, facts),
    )
    name, before = weights_name(engine.name), () if asked.known is None else asked.known.made
    weights = None if planned is None else PreparedWeights(name, weights_content(engine, planned.constants))
    plan = PlanFile(
        PLAN_FILE_VERSION, asked.planning_key, asked.key, asked.facts, Places(tuple(places.items())), model.files,
        summary, task_graph(context), tuple(file for file in before if file.path == name), asked.use,
    )  # fmt: skip
    notes = () if planned is None else _told(planned.plan)
    there = {name, *(path for path, _ in contents)}
    obsolete = tuple(file.path for file in before if file.path not in there)
    return PreparedTarget(directory, plan, asked.unverified, asked.elsewhere, contents, weights, obsolete, notes=notes)


def _text(value: object) -> str:
    return json.dumps(encode(value), indent=1) + "\n"


def _summary(plan: EnginePlan, target: Target) -> EngineSummary:
    units = tuple(
        UnitSummary(unit.name, unit.memory_mb, unit.label) for unit in kernel_units(plan, target, load(target))
    )
    return EngineSummary(
        plan.name, source_names(plan, target), units, tuple(dict.fromkeys(p.batch for p in plan.plans)),
        plan.layout_digest,
        payload_bytes(plan.weights), max(p.arena_bytes for p in plan.plans), sum(len(p.steps) for p in plan.plans),
        used_families(plan), used_packages(plan, target),
        tuple(p.sizes for p in plan.plans if p.dims),
    )  # fmt: skip


def _told(plan: EnginePlan) -> tuple[str, ...]:
    """What a new plan gives to say: slow steps, and extents that inputs must have exactly."""
    return (*map(str, plan.slow), *exact_lengths(plan.padded))


def _build_facts(asked: Question) -> BuildFacts:
    """What the manifest says of the build. How it is verified is no part of what the engine is made from."""
    pairs = (pair for pair in engine_facts(asked.facts).recipe if pair not in _UNSAID)
    recipe = digest([[f"recipe:{key}", value] for key, value in pairs])
    used = tuple(
        ResolvedTool(tool.name, tool.version, tool.digest)
        for tool in asked.tools.tools
        if tool.name in asked.target.tools
    )
    return BuildFacts(recipe, used, kernels=asked.lock.source(asked.use, asked.tools))
