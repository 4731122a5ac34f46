"""A recipe's model imported and planned for every target, to see what keeps it from being built. Builds nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.planning.unmatched_layers import unmatched_layers
from bolt_build.emit.weights import payload_bytes
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.scratch import scratch_folder


@dataclass(frozen=True)
class PlannedSize:
    """What the engine of a target would be: `steps` of all `batches` together, the largest arena. Sizes in bytes."""

    target: str
    batches: tuple[int, ...]
    steps: int
    weight_bytes: int
    arena_bytes: int


@dataclass(frozen=True)
class ModelCheck:
    """The targets that could be planned, and everything that is in the way of the others, each once. `warned` is what
    is to be said of those that could."""

    recipe: Recipe
    sizes: tuple[PlannedSize, ...]
    wrong: tuple[Diagnostic, ...]
    warned: tuple[Diagnostic, ...] = ()


def check_model(recipe: Recipe, options: BuildOptions, say: Callable[[str], None]) -> ModelCheck:
    """Imports the model and plans it for the chosen targets, with the kernels of its lock. A model that is written
    here (the zoo's, a variant, one with changed inputs or outputs) goes to a temporary folder where no build has
    written it yet.

    Raises BoltError for targets that the recipe does not have.
    """
    specs = chosen(recipe, options.targets)
    directory = options.directory(recipe)
    if directory.zoo_stamp.is_file() or not recipe.writes_model:
        return _checked(recipe, specs, Preparer(recipe, directory, say))
    with scratch_folder() as folder:
        return _checked(recipe, specs, Preparer(recipe, RecipeDirectory(folder), say))


def _checked(recipe: Recipe, specs: tuple[TargetSpec, ...], preparer: Preparer) -> ModelCheck:
    sizes: list[PlannedSize] = []
    wrong: dict[Diagnostic, None] = {}
    warned: list[Diagnostic] = []
    try:
        _ = preparer.parsed  # what is wrong with the model is wrong for every target
    except BoltError as error:
        return ModelCheck(recipe, (), tuple(dict.fromkeys(error.diagnostics)))
    for spec in specs:
        try:
            planned = preparer.plan_engine(spec)
        except BoltError as error:
            wrong.update(dict.fromkeys(error.diagnostics))
            continue
        sizes.append(_size(planned.plan, spec))
        warned += unmatched_layers(recipe, spec, planned)
    return ModelCheck(recipe, tuple(sizes), tuple(wrong), tuple(warned))


def _size(plan: EnginePlan, spec: TargetSpec) -> PlannedSize:
    return PlannedSize(
        spec.name, tuple(dict.fromkeys(each.batch for each in plan.plans)), sum(len(each.steps) for each in plan.plans),
        payload_bytes(plan.weights), max(each.arena_bytes for each in plan.plans),
    )  # fmt: skip
