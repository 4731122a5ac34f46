"""From a recipe to the plan of one target, made again only when something that it reads has changed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import bolt_build
from bolt_build.build.facts import Facts, Versioned, versioned
from bolt_build.build.files import FileStamp, stamp
from bolt_build.build.last_runs import PLANNING, load_last_runs
from bolt_build.build.layout import RecipeDirectory, TargetDirectory
from bolt_build.build.model_file import ModelFile, model_file
from bolt_build.build.origin import rival
from bolt_build.build.own_sources import PACKAGE, code_digest, compiled_digest, family_modules, package_versions
from bolt_build.build.packages import asked_for
from bolt_build.build.plan_file import (
    NOTHING_USED,
    PLAN_FILE_VERSION,
    EngineSummary,
    Places,
    PlanFile,
    TuningUse,
    UnitSummary,
    load_plan_file,
)
from bolt_build.build.prepared_target import PreparedTarget, PreparedWeights
from bolt_build.build.target_lock import TargetLock, target_lock
from bolt_build.digest import digest, encode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema import flatten
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.toolchain import Tool, Toolchain, probe
from bolt_build.toolchain.machine import why_not_here

if TYPE_CHECKING:
    # It loads what it describes: a build that finds nothing changed needs none.
    from bolt_build.emit.manifest import BuildFacts
    from bolt_build.graph.onnx_import import OnnxModel
    from bolt_build.planner.engine_plan import EnginePlan
    from bolt_build.planner.plan_engine import PlannedEngine
    from bolt_build.planner.selection import Selection

# How an engine is verified and how its kernels are measured: what of the lock counts is a fact of its own.
_NOT_THE_ENGINE = ("verify.", "tuning.")
_UNSAID = (("policy.padding.mode", '"auto"'), ("policy.padding.alignment", "8"))
"""Defaults of keys that came later: engines of recipes without them are what they were."""
_FILES = ("engine.json", "provenance.json", "recipe.json", "selection.json")
"""What planning writes beside sources and weights."""


@dataclass
class Preparer:
    """Plans the targets of one recipe; the ONNX file is parsed once for all of them. `locked` refuses a plan that is
    not the lock's, or with a kernel that was not measured, or measured with another toolchain. `stage` hears of what
    takes its time, and how many seconds it took last; it is said by `say` where there is none."""

    recipe: Recipe
    directory: RecipeDirectory
    say: Callable[[str], None]
    find_tools: Callable[[Sequence[str]], Toolchain] = probe
    why_not_here: Callable[[Target], str | None] = why_not_here
    locked: bool = False
    stage: Callable[[str, float | None], None] | None = None
    _model: ModelFile | None = None
    _parsed: OnnxModel | None = None

    def plan(self, spec: TargetSpec) -> PreparedTarget:
        """The plan for one target of the recipe.

        Raises BoltError: with exit code 7 where a tool that the target needs is missing, 6 where `locked` is asked for
        and the lock does not do, else for what is wrong with the model or the lock.
        """
        found = self._question(spec)
        slow: tuple[str, ...] = ()
        if self.locked:
            found.lock.check_there()
        if found.current and found.known is not None:
            touched = found.known.model != found.model.files
            plan = replace(found.known, model=found.model.files) if touched else found.known
            target = PreparedTarget(found.directory, plan, found.unverified, found.elsewhere, touched=touched)
        elif found.replans or found.known is None:
            began = time.monotonic()
            planned = self._plan_engine(spec, found.target, found.lock.selection)
            graphs = tuple(cover.graph for cover in planned.covers)
            found = found.using(TuningUse(planned.asked, graphs, planned.used, planned.declined))
            target = self._tasks(found, planned)
            target = replace(target, planning=time.monotonic() - began)
            slow = tuple(f"{self.recipe.name}/{spec.name}: {each}" for each in _told(planned.plan))
        else:
            target = self._tasks(found, None)
        if self.locked:
            found.lock.check_locked(found.use, found.tools)
        return replace(
            target, kernels=found.lock.source(found.use, found.tools),
            notes=(*found.damage, *found.lock.notes, *slow),
            warnings=(*rival(found.directory, self.recipe), *found.lock.warnings(found.use, found.tools)),
        )  # fmt: skip

    def is_current(self, spec: TargetSpec) -> bool:
        """True where the plan in the directory is for the engine that the recipe describes. Plans nothing.

        How it is verified does not matter. Raises BoltError.
        """
        return self._question(spec).describes_engine

    def _question(self, spec: TargetSpec) -> _Question:
        target = target_named(spec.name)
        toolchain = self.find_tools(target.tools)
        if toolchain.missing:
            raise BoltError(toolchain.diagnostics(), ExitCode.TOOL_MISSING)
        elsewhere = self.why_not_here(target)
        tools, unverified = self._with_verifier(elsewhere is None, toolchain)
        directory = self.directory.target(spec.name)
        known = load_plan_file(directory.plan)
        model = self._model_file(known.model if known is not None else ())
        damaged = () if known is None else _damaged(known, directory)
        lock = target_lock(self.recipe, spec, target)
        question = _Question(
            self.recipe, spec, target, tools, unverified, elsewhere, directory, model, lock, known, damaged
        )  # fmt: skip
        return question.using(known.tuning) if known is not None else question

    def plan_engine(self, spec: TargetSpec) -> PlannedEngine:
        """The engine plan itself, with graphs and constants, made anew. Raises BoltError."""
        target = target_named(spec.name)
        return self._plan_engine(spec, target, target_lock(self.recipe, spec, target).selection)

    def batches(self, spec: TargetSpec | None = None) -> tuple[int, ...]:
        """The batch sizes of a target, or of the model itself, which is read where the recipe leaves them to it.

        Raises BoltError.
        """
        own = self.recipe.model.batch if spec is None else self.recipe.batches(spec)
        return own if own and self._parsed is None else self.parsed.batches(own)

    @property
    def parsed(self) -> OnnxModel:
        """The recipe's model, parsed once. Raises BoltError with everything that keeps it from being imported."""
        if self._parsed is None:
            # The heavy half of planning loads onnx and NumPy: a build that finds nothing changed needs neither.
            from bolt_build.build.engine_from_model import parse

            self._parsed = parse(self.model.path)
        return self._parsed

    @property
    def model(self) -> ModelFile:
        """The recipe's ONNX file, written if it comes from the zoo. Raises BoltError."""
        return self._model_file(())

    def _model_file(self, known: tuple[FileStamp, ...]) -> ModelFile:
        if self._model is None:
            self._model = model_file(self.recipe, self.directory, known, self.say, self._begin)
        return self._model

    def _begin(self, text: str, expected: float | None) -> None:
        if self.stage is None:
            self.say(text)
        else:
            self.stage(text, expected)

    def _with_verifier(self, runs_here: bool, toolchain: Toolchain) -> tuple[Toolchain, Tool | None]:
        """The tools with the one that verifies, where the target's engines run here; or what is missing of it."""
        if not runs_here:
            return toolchain, None
        verifier = self.find_tools((self.recipe.verify.against,)).tools[0]
        if verifier.problem is not None:
            return toolchain, verifier
        return Toolchain((*toolchain.tools, verifier)), None

    def _plan_engine(self, spec: TargetSpec, target: Target, selection: Selection) -> PlannedEngine:
        # The heavy half of planning loads onnx and NumPy: a build that finds nothing changed needs neither.
        from bolt_build.build.engine_from_model import plan_parsed

        last = load_last_runs(self.directory.target(spec.name)).of(PLANNING)
        self._begin(f"planning {self.recipe.name} for {spec.name}", None if last is None else last.seconds)
        return plan_parsed(self.parsed, self.recipe, spec, target, selection)

    def _tasks(self, asked: _Question, planned: PlannedEngine | None) -> PreparedTarget:
        """Tasks, and all that they read, for a plan that was just made, or (None) for the one in the directory."""
        # All of these load NumPy or families: a build that finds nothing changed needs none.
        from bolt_build.build.context import BuildContext
        from bolt_build.build.emission import emitted_sources
        from bolt_build.build.engine_file import ENGINE, read_engine
        from bolt_build.build.engine_parts import families_of
        from bolt_build.build.provenance_file import PROVENANCE
        from bolt_build.build.task_graph import places_of, task_graph
        from bolt_build.emit.weights import weights_content
        from bolt_build.runtime.names import weights as weights_name

        target, directory, model = asked.target, asked.directory, asked.model
        text = directory.engine.read_text(encoding="utf-8") if planned is None else _text(planned.plan)
        engine = read_engine(text) if planned is None else planned.plan
        summary = _summary(engine, target)
        verified = asked.elsewhere is None and asked.unverified is None
        context = BuildContext(self.recipe, target, families_of(summary, target), asked.tools, summary, model, verified)
        places = places_of(context, directory.path, sys.executable, PACKAGE)
        provenance = _build_facts(asked)
        contents = (
            (ENGINE, text),
            (PROVENANCE, _text(provenance)),
            ("recipe.json", _text(self.recipe)),
            ("selection.json", _text(asked.lock.relevant(asked.use))),
            *emitted_sources(engine, provenance),
        )
        name, before = weights_name(engine.name), () if asked.known is None else asked.known.made
        weights = None if planned is None else PreparedWeights(name, weights_content(engine, planned.constants))
        plan = PlanFile(
            PLAN_FILE_VERSION, asked.planning_key, asked.key, asked.facts, Places(tuple(places.items())), model.files,
            summary, task_graph(context), tuple(file for file in before if file.path == name), asked.use,
        )  # fmt: skip
        there = {name, *(path for path, _ in contents)}
        obsolete = tuple(file.path for file in before if file.path not in there)
        return PreparedTarget(directory, plan, asked.unverified, asked.elsewhere, contents, weights, obsolete)


@dataclass(frozen=True)
class _Question:
    """All that decides whether a target must be planned. `known`: the plan in its directory, `damaged` the files of it
    that are not what they were; `use` is what it, or the plan that was made since, takes from the lock."""

    recipe: Recipe
    spec: TargetSpec
    target: Target
    tools: Toolchain
    unverified: Tool | None
    elsewhere: str | None
    directory: TargetDirectory
    model: ModelFile
    lock: TargetLock
    known: PlanFile | None
    damaged: tuple[str, ...] = ()
    use: TuningUse = NOTHING_USED

    def using(self, use: TuningUse) -> _Question:
        """The question that is asked where this is what the engine takes from the lock."""
        return replace(self, use=use)

    @cached_property
    def facts(self) -> Facts:
        return Facts(
            _recipe_facts(self.recipe, self.spec), self.model.digest,
            tuple(versioned(tool.name, tool.version, tool.digest) for tool in self.tools.tools),
            package_versions(asked_for(self.target)), _own(self.target), self.lock.facts(self.use),
        )  # fmt: skip

    @cached_property
    def planning_key(self) -> str:
        read = replace(_engine_facts(self.facts), tools=(), own=None)
        families = family_modules(self.target.families)
        code = code_digest("bolt_build.build.engine_from_model", "bolt_build.emit.weights", chosen=families)
        return digest([encode(read), code, self.target.name])

    @cached_property
    def key(self) -> str:
        verified = self.elsewhere is None and self.unverified is None
        around = _surroundings(self.tools, self.directory, self.model, self.recipe.verify.inputs)
        return digest([self.planning_key, encode(self.facts), around, not verified])

    @property
    def replans(self) -> bool:
        if self.known is None or self.known.planning_key != self.planning_key:
            return True
        # Sources follow from the plan, everything else from the model.
        return any(not name.startswith("src/") for name in self.damaged)

    @property
    def describes_engine(self) -> bool:
        """True where the plan in the directory is there, and of the engine that is asked for."""
        if self.known is None or self.known.planning_key != self.planning_key or set(_FILES) & set(self.damaged):
            return False
        return _engine_facts(self.known.facts) == _engine_facts(self.facts)

    @property
    def current(self) -> bool:
        return self.known is not None and self.known.key == self.key and not self.damaged

    @property
    def damage(self) -> tuple[str, ...]:
        """What is to be said of files that were changed, not of those that are gone."""
        there = (name for name in self.damaged if (self.directory.path / name).is_file())
        return tuple(f"{name} was changed by hand; it is made again" for name in there)


def _text(value: object) -> str:
    return json.dumps(encode(value), indent=1) + "\n"


def _recipe_facts(recipe: Recipe, spec: TargetSpec) -> tuple[tuple[str, str], ...]:
    """Its keys and their values, but those of other targets. It names its model by a path; what counts is the
    contents."""
    keys = (pair for pair in flatten(recipe) if not _of_another_target(pair[0], recipe, spec))
    return tuple(pair for pair in keys if pair[0] != "model.onnx")


def _own(target: Target) -> Versioned:
    """What of bolt-build makes an engine: planning, the actions, and what is compiled."""
    chosen = family_modules(target.families)
    code = code_digest("bolt_build.build.preparing", "bolt_build.build.action", chosen=chosen)
    return versioned("bolt-build", bolt_build.__version__, digest([code, compiled_digest(target.families)]))


def _of_another_target(key: str, recipe: Recipe, spec: TargetSpec) -> bool:
    return any(key.startswith(f"targets.{other.name}.") for other in recipe.targets if other.name != spec.name)


def _engine_facts(facts: Facts) -> Facts:
    """Those that an engine is made from."""
    return replace(facts, recipe=tuple(pair for pair in facts.recipe if not _beside_the_engine(pair[0])))


def _beside_the_engine(key: str) -> bool:
    """True of what the recipe says of verifying and tuning, also layer by layer."""
    layer = key.startswith("layers.") and key.endswith(".tolerance")
    return layer or key.startswith(_NOT_THE_ENGINE)


def _surroundings(tools: Toolchain, directory: TargetDirectory, model: ModelFile, inputs: str | None) -> list[object]:
    """Paths that stand in the plan: where they change it is written again, and no task runs for it."""
    where = [[t.path, list(t.include_dirs), list(t.library_dirs), list(t.libraries)] for t in tools.tools]
    return [where, str(directory.path), sys.executable, str(PACKAGE), str(model.path), inputs]


def _damaged(plan: PlanFile, directory: TargetDirectory) -> tuple[str, ...]:
    """Files of the plan that are gone, or not what planning wrote."""
    found = []
    for file in plan.made:
        path = directory.path / file.path
        try:
            if not file.matches(path.stat()) and stamp(path).digest != file.digest:
                found.append(file.path)
        except OSError:
            found.append(file.path)
    return tuple(found)


def _summary(plan: EnginePlan, target: Target) -> EngineSummary:
    # These load NumPy and families: a build that finds nothing changed needs none.
    from bolt_build.build.engine_parts import used_families, used_packages
    from bolt_build.emit.engine import kernel_units, source_names
    from bolt_build.emit.weights import payload_bytes
    from bolt_build.families import load

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
    # A build that finds nothing changed loads no planner.
    from bolt_build.planner.padded_dims import exact_lengths

    return (*map(str, plan.slow), *exact_lengths(plan.padded))


def _build_facts(asked: _Question) -> BuildFacts:
    """What the manifest says of the build. How it is verified is no part of what the engine is made from."""
    # It loads what it describes: a build that finds nothing changed needs none.
    from bolt_build.emit.manifest import BuildFacts, ResolvedTool

    pairs = (pair for pair in _engine_facts(asked.facts).recipe if pair not in _UNSAID)
    recipe = digest([[f"recipe:{key}", value] for key, value in pairs])
    used = tuple(
        ResolvedTool(tool.name, tool.version, tool.digest)
        for tool in asked.tools.tools
        if tool.name in asked.target.tools
    )
    return BuildFacts(recipe, used, kernels=asked.lock.source(asked.use, asked.tools))


def missing_verifier(tool: Tool) -> Diagnostic:
    """Why an engine is built but not verified."""
    return Diagnostic("missing-tool", f"not verified: {tool.problem}", hint=tool.mend, subject=tool.name)
