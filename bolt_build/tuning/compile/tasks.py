"""Tasks of a tuning: kernel units as engines compile them, the sources that call them, `candidates.so` and `run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.build.own_code.own_sources import tree_digest
from bolt_build.build.planning.compiles import SOON_COMPILED, kernel_compiles, other_compile
from bolt_build.build.planning.context import BuildContext, in_package, tool_values
from bolt_build.build.planning.plan_file import UnitSummary
from bolt_build.build.planning.task_graph import link_argv
from bolt_build.build.tasks import Task, TaskGraph, Value, ValueKind
from bolt_build.families.base import KernelUnit
from bolt_build.tuning.compile.glue import GlueSource, driver_units, include_dir
from bolt_build.tuning.exchange.bundle import CANDIDATES, RUN

_FLAGS = ("-I${tuning}/include",)
_DRIVER_PLACE = include_dir().parent


def places() -> tuple[tuple[str, str], ...]:
    """Folders that these tasks name beside those of a build."""
    return (("tuning", str(_DRIVER_PLACE)),)


def driver_digest() -> str:
    """Digest of everything that the driver is made from."""
    return tree_digest(_DRIVER_PLACE)


def source_path(name: str) -> str:
    """Where a generated source of a tuning lies in its directory."""
    return f"src/{name}"


def driver_graph(context: BuildContext) -> TaskGraph:
    """What makes `run` alone: it also says which devices there are."""
    return _graph(context, _driver(context), (RUN,))


def kernels_graph(context: BuildContext, units: Sequence[KernelUnit], glue: Sequence[GlueSource]) -> TaskGraph:
    """The first pass: kernel units, the glue that calls them, and the driver. Nothing stands behind what may fail."""
    return _graph(context, (*_units(context, units), *_glue(context, glue), *_driver(context)), (RUN,))


def linked_graph(
    context: BuildContext, units: Sequence[KernelUnit], glue: Sequence[GlueSource], table: GlueSource
) -> TaskGraph:
    """The second pass: what compiled, and the library that it makes together with the table of all problems."""
    compiled = (*_units(context, units), *_glue(context, [*glue, table]))
    objects = tuple(task.outputs[0] for task in compiled)
    link = _link(context, "link-candidates", CANDIDATES, objects, shared=True)
    return _graph(context, (*compiled, *_driver(context), link), (CANDIDATES, RUN))


def task_of(source: str) -> str:
    """The name of the task that compiles a generated source."""
    return f"compile-{Path(source).stem}"


def _units(context: BuildContext, units: Sequence[KernelUnit]) -> tuple[Task, ...]:
    return kernel_compiles(context, [UnitSummary(unit.name, unit.memory_mb, unit.label) for unit in units])


def _glue(context: BuildContext, glue: Sequence[GlueSource]) -> tuple[Task, ...]:
    values = (Value(ValueKind.SOURCE, "tuning", tree_digest(include_dir())),)
    made = (
        (source, other_compile(context, source_path(source.name), Path(source.name).stem, _FLAGS, values))
        for source in glue
    )
    return tuple(replace(task, label=f"compile {source.label}") if source.label else task for source, task in made)


def _driver(context: BuildContext) -> tuple[Task, ...]:
    values = (Value(ValueKind.SOURCE, "tuning", driver_digest()),)
    flags = (*_FLAGS, "-I${tuning}/src")
    # What is measured runs on the GPU, which takes its own time. nvcc takes one -O alone.
    compiled = tuple(
        other_compile(
            context, in_package(path), f"tuning_{path.stem}",
            (*flags, *(SOON_COMPILED if path.suffix == ".cpp" else ())), values,
        )
        for path in driver_units()
    )  # fmt: skip
    return (*compiled, _link(context, "link-run", RUN, tuple(task.outputs[0] for task in compiled), shared=False))


def _link(context: BuildContext, name: str, output: str, objects: tuple[str, ...], *, shared: bool) -> Task:
    argv = link_argv(context, output, objects, shared=shared)
    return Task(name, "link", f"link {output}", argv, objects, (output,), tool_values(context.tools))


def _graph(context: BuildContext, tasks: Sequence[Task], artifacts: tuple[str, ...]) -> TaskGraph:
    directory = f"{context.recipe.name}/{context.target.name}.tuning"
    return TaskGraph(context.recipe.name, context.target.name, directory, tuple(tasks), artifacts)
