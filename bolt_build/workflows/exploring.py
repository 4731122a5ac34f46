"""Builds models and their variants, and times them in turns, or predicts where no device is."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bolt_build.bench.device.cpu import CpuDevice
from bolt_build.bench.exploration import EXPLORATION_VERSION, Exploration, Explored, NotExplored, as_json
from bolt_build.bench.runner import Load, measure_alone
from bolt_build.build.builder import BuildOptions, Listener, build, chosen
from bolt_build.build.files import told, write_text
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.build.planning.engine_from_model import parse
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.result import BuildResult
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.planner.parameters import count_parameters
from bolt_build.runtime import names
from bolt_build.schema.recipe import Recipe
from bolt_build.schema.variants import with_variant
from bolt_build.targets import Target, target_named
from bolt_build.toolchain.machine import found_gpus, why_not_here
from bolt_build.wording import many

_WORST_FIRST = (
    ExitCode.INVALID, ExitCode.TASK_FAILED, ExitCode.VERIFY_FAILED, ExitCode.LOCK, ExitCode.TOOL_MISSING,
    ExitCode.USAGE, ExitCode.OK,
)  # fmt: skip


@dataclass(frozen=True)
class ExploreOptions:
    """`batches` of the targets' own, none means all: engines are then built for these alone. `threads` of CPU targets,
    none means all. Each engine runs for about `seconds` in so many `rounds`, in turns with the others. `predict` builds
    and measures nothing."""

    build: BuildOptions
    batches: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    seconds: float = 3.0
    rounds: int = 3
    predict: bool = False


@dataclass(frozen=True)
class ExploreResult:
    """One exploration a target, what there is to say of builds, the exit code that all of it amounts to, and the builds
    in which a task failed."""

    explorations: tuple[Exploration, ...]
    diagnostics: tuple[Diagnostic, ...]
    exit_code: ExitCode
    broken: tuple[BuildResult, ...] = ()


@dataclass(frozen=True)
class _Model:
    """A recipe, or one of its variants: `name` is what a command line calls it, `base` the recipe's name."""

    name: str
    base: str
    recipe: Recipe


@dataclass(frozen=True)
class _Engine:
    """What is planned, and, where `runner` is given, built of a model for one target."""

    model: _Model
    plan: EnginePlan
    onnx: Path
    parameters: int
    runner: Path | None = None
    kernels: KernelSource | None = None
    verified: bool | None = None


@dataclass
class _Matrix:
    """Engines and failures by target, in the order of the models."""

    engines: dict[str, list[_Engine]] = field(default_factory=dict)
    failed: dict[str, list[NotExplored]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    broken: list[BuildResult] = field(default_factory=list)
    codes: list[ExitCode] = field(default_factory=lambda: [ExitCode.OK])

    def fail(self, model: _Model, target: str, reason: str) -> None:
        self.failed.setdefault(target, []).append(NotExplored(model.name, model.base, reason))

    def say(self, diagnostics: Sequence[Diagnostic], code: ExitCode) -> None:
        self.diagnostics += [each for each in diagnostics if each not in self.diagnostics]
        self.codes.append(code)


def explore(recipes: Sequence[Recipe], options: ExploreOptions, listener: Listener) -> ExploreResult:
    """Explores every recipe with its variants; what is found of each is also written to its directory's `explore.json`.

    A model that cannot be built is told of, and keeps no other from being explored. Must run in the main thread. Raises
    BoltError for targets and batches that a recipe does not have, and for two models with one name; KeyboardInterrupt.
    """
    models = [model for recipe in recipes for model in _models(_cut(recipe, options, listener.say), recipe.name)]
    _check_names(models)
    matrix = _Matrix()
    for model in models:
        (_plan_model if options.predict else _build_model)(model, options, listener, matrix)
    targets = dict.fromkeys(spec.name for model in models for spec in chosen(model.recipe, options.build.targets))
    found = tuple(_explore_target(target_named(name), matrix, options, listener.say) for name in targets)
    for recipe in recipes:
        directory = options.build.directory(recipe)
        with told(directory.exploration):
            directory.path.mkdir(parents=True, exist_ok=True)
            write_text(directory.exploration, json.dumps([as_json(e.of(recipe.name)) for e in found], indent=1) + "\n")
    code = min(matrix.codes, key=_WORST_FIRST.index)
    return ExploreResult(found, tuple(matrix.diagnostics), code, tuple(matrix.broken))


def _cut(recipe: Recipe, options: ExploreOptions, say: Callable[[str], None]) -> Recipe:
    """The recipe for the wanted batches and the largest lengths alone, and where times are only predicted without its
    lock, which variants do not have. Raises BoltError where a target has none of the batches."""
    # Models of one table are compared at one length.
    largest = tuple((name, (extent,)) for name, extent in recipe.model.largest)
    recipe = replace(recipe, model=replace(recipe.model, sizes=largest))
    if options.predict:
        recipe = replace(recipe, tuning=replace(recipe.tuning, lock=None))
    specs = {spec.name: spec for spec in chosen(recipe, options.build.targets)}
    preparer = Preparer(recipe, options.build.directory(recipe), say)
    for name, spec in specs.items() if options.batches else ():
        own = preparer.batches(spec)
        batches = tuple(batch for batch in own if batch in options.batches)
        if not batches:
            hint = f"its batches: {', '.join(map(str, own))}"
            message = f"{recipe.path} has none of these batches for {name}"
            raise BoltError([Diagnostic("unknown-batch", message, recipe.mark("model.batch"), hint)], ExitCode.USAGE)
        if batches != own:
            specs[name] = replace(spec, batch=batches)
    return replace(recipe, targets=tuple(specs.get(spec.name, spec) for spec in recipe.targets))


def _models(recipe: Recipe, base: str) -> Iterator[_Model]:
    """The recipe as it stands, then each of its variants."""
    yield _Model(base, base, recipe)
    for variant in recipe.variants:
        if variant.name != recipe.model.variant:
            yield _Model(f"{base}@{variant.name}", base, with_variant(recipe, variant.name))


def _check_names(models: Sequence[_Model]) -> None:
    """Raises BoltError where two models would share one directory."""
    first: dict[str, _Model] = {}
    for model in models:
        other = first.setdefault(model.recipe.name, model)
        if other is not model:
            message = f"{other.recipe.path} and {model.recipe.path} are both called '{model.recipe.name}'"
            mark = model.recipe.mark("name")
            raise BoltError([Diagnostic("same-name", message, mark, "explore them one after the other")])


def _plan_model(model: _Model, options: ExploreOptions, listener: Listener, matrix: _Matrix) -> None:
    preparer = Preparer(model.recipe, options.build.directory(model.recipe), listener.say)
    for spec in chosen(model.recipe, options.build.targets):
        try:
            planned = preparer.plan_engine(spec)
            path = preparer.model.path
            parameters = _parameters(model.recipe, path)
        except BoltError as error:
            matrix.say(error.diagnostics, error.exit_code)
            matrix.fail(model, spec.name, error.diagnostics[0].message)
            continue
        matrix.engines.setdefault(spec.name, []).append(_Engine(model, planned.plan, path, parameters))


def _build_model(model: _Model, options: ExploreOptions, listener: Listener, matrix: _Matrix) -> None:
    try:
        result = build(model.recipe, options.build, listener)
    except BoltError as error:
        matrix.say(error.diagnostics, error.exit_code)
        for spec in chosen(model.recipe, options.build.targets):
            matrix.fail(model, spec.name, error.diagnostics[0].message)
        return
    if result.exit_code is ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    matrix.say(result.diagnostics, result.exit_code)
    if result.failed:
        matrix.broken.append(result)
    done = {target.target: target for target in result.targets}
    for spec in chosen(model.recipe, options.build.targets):
        target = done.get(spec.name)
        if target is None or not target.artifacts:
            matrix.fail(model, spec.name, _why_not_built(result, spec.name))
            continue
        plan = read_engine(target.directory.engine.read_text(encoding="utf-8"))
        onnx = _onnx(target.directory)
        engine = _Engine(
            model, plan, onnx, _parameters(model.recipe, onnx), target.directory.path / names.runner(plan.name),
            target.kernels, target.verified,
        )  # fmt: skip
        matrix.engines.setdefault(spec.name, []).append(engine)


def _why_not_built(result: BuildResult, target: str) -> str:
    failed = [f"{event.label}: {event.text}" for event in result.failed if event.target == target]
    own = dict(result.obstacles).get(target, ())
    about = (None, result.recipe, target)
    errors = [each for each in result.diagnostics if each.severity == "error" and each.subject in about]
    return "; ".join(failed or [each.message for each in own or errors] or ["it was not built"])


def _onnx(directory: TargetDirectory) -> Path:
    plan = load_plan_file(directory.plan)
    assert plan is not None, directory.plan
    return Path(plan.model[0].path)


def _parameters(recipe: Recipe, onnx: Path) -> int:
    model = parse(onnx)
    return count_parameters(model.bind(model.batches(recipe.model.batch)[0], recipe.model.largest), recipe.policy)


def _explore_target(
    target: Target, matrix: _Matrix, options: ExploreOptions, say: Callable[[str], None]
) -> Exploration:
    engines = matrix.engines.get(target.name, [])
    elsewhere = "asked for with --predict" if options.predict else why_not_here(target)
    device = "" if elsewhere is not None else _device(target)
    rows: list[Explored] = []
    for batch in dict.fromkeys(plan.batch for engine in engines for plan in engine.plan.plans):
        some = [(engine, plan) for engine in engines for plan in engine.plan.plans if plan.batch == batch]
        if elsewhere is not None:
            rows += _compared([_row(e, plan, None, _predicted_ms(plan, target)) for e, plan in some])
            continue
        for threads in _threads(target, options):
            engines_of = f"{many(len(some), 'engine')} for {target.name}, batch {batch}"
            say(f"measuring {engines_of}, {many(options.rounds, 'round')} in turns")
            rows += _compared(_measured(some, threads, target.name, matrix, options))
    failed = tuple(matrix.failed.get(target.name, ()))
    return Exploration(EXPLORATION_VERSION, target.name, device, elsewhere, tuple(rows), failed)


def _threads(target: Target, options: ExploreOptions) -> tuple[int | None, ...]:
    """Numbers of CPU threads to measure with; None alone where runs take none."""
    if not target.runs_on_threads:
        return (None,)
    return options.threads or (len(os.sched_getaffinity(0)),)


def _measured(
    some: Sequence[tuple[_Engine, BatchPlan]], threads: int | None, target: str, matrix: _Matrix,
    options: ExploreOptions,
) -> list[Explored]:  # fmt: skip
    """Each engine's medians of all rounds; each round begins with another one, so that none always follows the same."""
    medians: list[list[float]] = [[] for _ in some]
    broken: set[int] = set()
    for number in range(options.rounds):
        for place in range(len(some)):
            at = (number + place) % len(some)
            engine, plan = some[at]
            if at in broken or engine.runner is None:
                continue
            try:
                seconds = options.seconds / options.rounds
                found = measure_alone(engine.runner, plan.batch, threads, Load(seconds))
                medians[at].append(found.median_ms)
            except BoltError as error:
                broken.add(at)
                matrix.say(error.diagnostics, error.exit_code)
                matrix.fail(engine.model, target, f"batch {plan.batch}: {error.diagnostics[0].message}")
    return [
        replace(_row(engine, plan, threads, statistics.median(medians[at])), round_medians_ms=tuple(medians[at]))
        for at, (engine, plan) in enumerate(some)
        if at not in broken
    ]


def _row(engine: _Engine, plan: BatchPlan, threads: int | None, median_ms: float) -> Explored:
    steps = [step for step in plan.steps if not step.view]
    return Explored(
        model=engine.model.name, base=engine.model.base, precision=engine.plan.precision, batch=plan.batch,
        threads=threads, onnx=str(engine.onnx), parameters=engine.parameters, steps=len(steps),
        chains=sum(len(step.problem.op.sequence) > 1 for step in steps), median_ms=median_ms, round_medians_ms=(),
        kernels=engine.kernels, verified=engine.verified,
    )  # fmt: skip


def _compared(rows: Sequence[Explored]) -> list[Explored]:
    """The rows with their cost against the base among them."""
    speeds = {row.model: row.images_per_second for row in rows}
    return [
        row if row.model == row.base or row.base not in speeds
        else replace(row, cost=1 - row.images_per_second / speeds[row.base])
        for row in rows
    ]  # fmt: skip


def _predicted_ms(plan: BatchPlan, target: Target) -> float:
    """The sum of what the families predict for each step, even where a lock knows better, for it does not know all."""
    families = {family.name: family for family in load(target)}
    steps = (step for step in plan.steps if not step.view)
    return 1e3 * sum(families[s.candidate.family].predict(s.problem, s.candidate, target) for s in steps)


def _device(target: Target) -> str:
    if target.gpu is not None:
        return found_gpus()[0].name

    return CpuDevice().name
