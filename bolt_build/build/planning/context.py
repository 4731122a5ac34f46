"""What the tasks of one target are made from, and how they name things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.build.tasks import Value, ValueKind
from bolt_build.families.base import Family
from bolt_build.runtime import include_dir
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import Target
from bolt_build.toolchain import Tool, Toolchain

PLANNING_KEYS = ("name", "model", "variants", "targets", "policy", "layers", "engine", "tuning.lock")
"""Recipe keys that reach an engine's sources."""


@dataclass(frozen=True)
class BuildContext:
    """What tasks of one target are made from."""

    recipe: Recipe
    target: Target
    families: tuple[Family, ...]
    toolchain: Toolchain
    engine: EngineSummary
    model: ModelFile
    verified: bool

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The target's own tools."""
        return tuple(self.toolchain.tool(name) for name in self.target.tools)


def in_package(path: Path) -> str:
    """A file of this package as tasks name it."""
    return "${package}/" + str(path.relative_to(include_dir().parents[1]))


def tool_values(tools: Sequence[Tool]) -> tuple[Value, ...]:
    """What a result depends on where a tool made it."""
    return tuple(Value(ValueKind.TOOL, tool.name, tool.digest) for tool in tools)
