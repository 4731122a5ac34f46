"""From a recipe to the plan of one target, made again only when something that it reads has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bolt_build.build.files import FileStamp, stamp
from bolt_build.build.last_runs import PLANNING, load_last_runs
from bolt_build.build.layout import RecipeDirectory, TargetDirectory
from bolt_build.build.planning.model_file import ModelFile, model_file
from bolt_build.build.planning.model_mark import marked
from bolt_build.build.planning.origin import rival
from bolt_build.build.planning.plan_file import PlanFile, TuningUse, load_plan_file
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.planning.question import Question
from bolt_build.build.planning.target_lock import target_lock
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.toolchain import Tool, Toolchain, probe
from bolt_build.toolchain.machine import why_not_here

if TYPE_CHECKING:
    # They load what they describe: a build that finds nothing changed needs none.
    from bolt_build.graph.onnx_import import OnnxModel
    from bolt_build.planner.plan_engine import PlannedEngine
    from bolt_build.planner.selection import Selection


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
        toolchain = self._tools(spec)
        if toolchain.missing:
            raise BoltError(toolchain.diagnostics(), ExitCode.TOOL_MISSING)
        found = self._question(spec, toolchain)
        slow: tuple[str, ...] = ()
        lost: tuple[Diagnostic, ...] = ()
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
            target = _tasks_of(found, planned)
            target = replace(target, planning=time.monotonic() - began)
            slow = tuple(f"{self.recipe.name}/{spec.name}: {each}" for each in target.notes)
            lost = _unmatched_layers(self.recipe, spec, planned)
        else:
            target = _tasks_of(found, None)
        if self.locked:
            found.lock.check_locked(found.use, found.tools)
        return replace(
            target, kernels=found.lock.source(found.use, found.tools),
            notes=(*found.damage, *found.lock.notes, *slow),
            warnings=(*rival(found.directory, self.recipe), *lost, *found.lock.warnings(found.use, found.tools)),
        )  # fmt: skip

    def is_current(self, spec: TargetSpec) -> bool:
        """True where the plan in the directory is for the engine that the recipe describes. Plans nothing.

        How it is verified does not matter, and tools that are missing here are not compared. Raises BoltError.
        """
        toolchain = self._tools(spec)
        there = Toolchain(tuple(tool for tool in toolchain.tools if tool.problem is None))
        return self._question(spec, there).describes_engine(without=tuple(tool.name for tool in toolchain.missing))

    def missing_tools(self, spec: TargetSpec) -> tuple[Tool, ...]:
        """What a build of the target needs and this machine has not."""
        return self._tools(spec).missing

    def _tools(self, spec: TargetSpec) -> Toolchain:
        return self.find_tools(target_named(spec.name).tools)

    def _question(self, spec: TargetSpec, toolchain: Toolchain) -> Question:
        target = target_named(spec.name)
        elsewhere = self.why_not_here(target)
        tools, unverified = self._with_verifier(elsewhere is None, toolchain)
        directory = self.directory.target(spec.name)
        known = load_plan_file(directory.plan)
        model = self._model_file(known.model if known is not None else ())
        damaged = () if known is None else _damaged(known, directory)
        lock = target_lock(self.recipe, spec, target)
        question = Question(
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
        with marked(self.recipe):
            return own if own and self._parsed is None else self.parsed.batches(own)

    @property
    def parsed(self) -> OnnxModel:
        """The recipe's model, parsed once. Raises BoltError with everything that keeps it from being imported."""
        if self._parsed is None:
            # The heavy half of planning loads onnx and NumPy: a build that finds nothing changed needs neither.
            from bolt_build.build.planning.engine_from_model import parse

            path = self.model.path
            with marked(self.recipe):
                self._parsed = parse(path)
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
        from bolt_build.build.planning.engine_from_model import plan_parsed

        last = load_last_runs(self.directory.target(spec.name)).of(PLANNING)
        self._begin(f"planning {self.recipe.name} for {spec.name}", None if last is None else last.seconds)
        return plan_parsed(self.parsed, self.recipe, spec, target, selection)


def _tasks_of(asked: Question, planned: PlannedEngine | None) -> PreparedTarget:
    # It loads NumPy, onnx and families: a build that finds nothing changed needs none.
    from bolt_build.build.planning.made_plan import tasks_of

    return tasks_of(asked, planned)


def _unmatched_layers(recipe: Recipe, spec: TargetSpec, planned: PlannedEngine) -> tuple[Diagnostic, ...]:
    # It loads the graph, NumPy with it: a build that finds nothing changed needs neither.
    from bolt_build.build.planning.unmatched_layers import unmatched_layers

    return unmatched_layers(recipe, spec, planned)


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


def missing_verifier(tool: Tool) -> Diagnostic:
    """Why an engine is built but not verified."""
    return Diagnostic("missing-tool", f"not verified: {tool.problem}", hint=tool.mend, subject=tool.name)
