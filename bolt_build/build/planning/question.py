"""What decides whether a target is planned again: all that its engine is made from, beside the plan that is there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property

import bolt_build
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.own_code.facts import Facts, Versioned, versioned
from bolt_build.build.own_code.own_sources import (
    PACKAGE,
    code_digest,
    compiled_digest,
    family_modules,
    package_versions,
)
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.packages import asked_for
from bolt_build.build.planning.plan_file import NOTHING_USED, PlanFile, TuningUse
from bolt_build.build.planning.target_lock import TargetLock
from bolt_build.digest import digest, encode
from bolt_build.schema.expand import flatten
from bolt_build.schema.recipe import VERIFIERS, Recipe, TargetSpec
from bolt_build.targets import Target
from bolt_build.toolchain import Tool, Toolchain

# How an engine is verified and how its kernels are measured: what of the lock counts is a fact of its own.
_NOT_THE_ENGINE = ("verify.", "tuning.")
_FILES = ("engine.json", "provenance.json", "recipe.json", "selection.json")
"""What planning writes beside sources and weights."""


@dataclass(frozen=True)
class Question:
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

    def using(self, use: TuningUse) -> Question:
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
        read = replace(engine_facts(self.facts), tools=(), own=None)
        families = family_modules(self.target.families)
        code = code_digest("bolt_build.build.planning.engine_from_model", "bolt_build.emit.weights", chosen=families)
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

    def describes_engine(self, without: tuple[str, ...] = ()) -> bool:
        """True where the plan in the directory is there, and of the engine that is asked for, but for the tools
        `without` which it is asked."""
        if self.known is None or self.known.planning_key != self.planning_key or set(_FILES) & set(self.damaged):
            return False
        known = self.known.facts
        known = replace(known, tools=tuple(tool for tool in known.tools if tool.name not in without))
        return engine_facts(known) == engine_facts(self.facts)

    @property
    def current(self) -> bool:
        return self.known is not None and self.known.key == self.key and not self.damaged

    @property
    def damage(self) -> tuple[str, ...]:
        """What is to be said of files that were changed, not of those that are gone."""
        there = (name for name in self.damaged if (self.directory.path / name).is_file())
        return tuple(f"{name} was changed by hand; it is made again" for name in there)


def _recipe_facts(recipe: Recipe, spec: TargetSpec) -> tuple[tuple[str, str], ...]:
    """Its keys and their values, but those of other targets. It names its model by a path; what counts is the
    contents."""
    keys = (pair for pair in flatten(recipe) if not _of_another_target(pair[0], recipe, spec))
    return tuple(pair for pair in keys if pair[0] != "model.onnx")


def _own(target: Target) -> Versioned:
    """What of bolt-build makes an engine: planning, the actions, and what is compiled."""
    chosen = family_modules(target.families)
    code = code_digest("bolt_build.build.planning.preparing", "bolt_build.build.action", chosen=chosen)
    return versioned("bolt-build", bolt_build.__version__, digest([code, compiled_digest(target.families)]))


def _of_another_target(key: str, recipe: Recipe, spec: TargetSpec) -> bool:
    return any(key.startswith(f"targets.{other.name}.") for other in recipe.targets if other.name != spec.name)


def engine_facts(facts: Facts) -> Facts:
    """Those that an engine is made from. What verifies is a tool only where the engine runs."""
    recipe = tuple(pair for pair in facts.recipe if not _beside_the_engine(pair[0]))
    return replace(facts, recipe=recipe, tools=tuple(tool for tool in facts.tools if tool.name not in VERIFIERS))


def _beside_the_engine(key: str) -> bool:
    """True of what the recipe says of verifying and tuning, also layer by layer."""
    layer = key.startswith("layers.") and key.endswith(".tolerance")
    return layer or key.startswith(_NOT_THE_ENGINE)


def _surroundings(tools: Toolchain, directory: TargetDirectory, model: ModelFile, inputs: str | None) -> list[object]:
    """Paths that stand in the plan: where they change it is written again, and no task runs for it."""
    where = [[t.path, list(t.include_dirs), list(t.library_dirs), list(t.libraries)] for t in tools.tools]
    return [where, str(directory.path), sys.executable, str(PACKAGE), str(model.path), inputs]
