"""From an engine plan's summary to tasks: compile, link, copies, manifest, verify.

Nothing here knows what kind of machine a target is: flags come from its row, headers from its families, libraries from
its tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.build.own_code.own_sources import code_digest, family_modules, package_versions
from bolt_build.build.planning.compiles import Values, compiles, family_places, library_units
from bolt_build.build.planning.context import PLANNING_KEYS, BuildContext, in_package, tool_values
from bolt_build.build.planning.engine_file import ENGINE
from bolt_build.build.planning.packages import named
from bolt_build.build.planning.provenance_file import PROVENANCE
from bolt_build.build.tasks import Task, TaskGraph, Value, ValueKind
from bolt_build.digest import canonical_json
from bolt_build.runtime import names, runner_sources
from bolt_build.toolchain import Tool

VERIFICATION = "verify.json"

_LINK = ("-Wl,--build-id=none", "-Wl,-rpath,$ORIGIN", "-Wl,--as-needed", "-Wl,-z,relro,-z,now")
_SHARED = ("-shared", "-Wl,--no-undefined", "-Wl,-Bsymbolic")
_PYTHON_MB = 300


def task_graph(context: BuildContext) -> TaskGraph:
    """Every task of one target, each behind what it needs. Sources and weights are there: planning writes them."""
    name = context.engine.name
    units = tuple(unit.name for unit in context.engine.units)
    emitted = tuple(f"src/{source}" for source in (*context.engine.sources, *units, "runner.cpp"))
    compiled = compiles(context, emitted)
    tasks = [*compiled, *_copies(context)]
    objects = {task.inputs[0]: task.outputs[0] for task in compiled}
    runner_units = ("src/runner.cpp", *(in_package(path) for path in runner_sources()))
    tasks.append(_link_library(context, tuple(objects[unit] for unit in library_units(context, emitted, runner_units))))
    tasks.append(_link_runner(context, tuple(objects[unit] for unit in runner_units)))
    made = tuple(output for task in tasks if task.rule in ("link", "copy") for output in task.outputs)
    shipped = (names.weights(name), *made)
    tasks.append(_manifest(context, shipped))
    artifacts = (*shipped, names.MANIFEST)
    if context.verified:
        tasks.append(_verify(context))
        artifacts = (*artifacts, VERIFICATION)
    return TaskGraph(context.recipe.name, context.target.name, f"{name}/{context.target.name}", tuple(tasks), artifacts)


def places_of(context: BuildContext, directory: Path, python: str, package: Path) -> dict[str, str]:
    """Absolute paths by the names that the tasks use."""
    places = {"directory": str(directory), "python": python, "package": str(package), "model": str(context.model.path)}
    if context.recipe.verify.inputs is not None:
        places["inputs"] = context.recipe.verify.inputs
    places |= {f"model.data{index}": file.path for index, file in enumerate(context.model.files[1:])}
    places |= tool_places(context.toolchain.tools)
    for family in context.families:
        places |= family_places(family)
    return places


def tool_places(tools: Sequence[Tool]) -> dict[str, str]:
    """What of tools tasks name: the program, and folders of headers and libraries."""
    places = {}
    for tool in tools:
        places[tool.name] = tool.path or ""
        for kind, paths in (("include", tool.include_dirs), ("folder", tool.library_dirs), ("ship", tool.libraries)):
            places |= {f"{tool.name}.{kind}{index}": path for index, path in enumerate(paths)}
    return places


def _python(action: str, *arguments: str) -> tuple[str, ...]:
    return ("${python}", "${package}/build/action.py", action, *arguments)


def _code(context: BuildContext, action: str) -> Values:
    """What an action is made with: the script that runs it, its module, and all that this imports; and the packages
    that the engine has something from."""
    chosen = (f"bolt_build.build.actions.{action}", *family_modules(context.target.families))
    code = code_digest("bolt_build.build.action", chosen=chosen)
    packages = package_versions(named(context.engine.packages))
    added = (Value(ValueKind.PACKAGE, package.name, f"{package.version} {package.mark}") for package in packages)
    return (Value(ValueKind.SOURCE, action, code), *added)


def link_argv(context: BuildContext, output: str, objects: tuple[str, ...], *, shared: bool) -> tuple[str, ...]:
    """The command that links objects alone, as an engine is linked, to a library or a program."""
    kind = _SHARED if shared else ()
    return (
        "${cxx}", *kind, *_LINK, "-o", "${out}/" + output, *objects, *_library_folders(context),
        *context.target.link_flags,
    )  # fmt: skip


def _link_library(context: BuildContext, objects: tuple[str, ...]) -> Task:
    library = names.library(context.engine.name)
    exports = f"src/{names.EXPORTS}"
    argv = (
        "${cxx}", *_SHARED, *_LINK, f"-Wl,-soname,{library}", f"-Wl,--version-script={exports}",
        "-o", "${out}/" + library, *objects, *_library_folders(context), *context.target.link_flags,
    )  # fmt: skip
    return Task(
        "link-library", "link", f"link {library}", argv, (*objects, exports), (library,),
        tool_values(context.tools), PLANNING_KEYS,
    )  # fmt: skip


def _link_runner(context: BuildContext, objects: tuple[str, ...]) -> Task:
    runner = names.runner(context.engine.name)
    library = names.library(context.engine.name)
    argv = (
        "${cxx}", *_LINK, "-o", "${out}/" + runner, *objects, library, "-Wl,-rpath-link,.", *_library_folders(context),
        *context.target.link_flags,
    )  # fmt: skip
    return Task(
        "link-runner", "link", f"link {runner}", argv, (*objects, library), (runner,),
        tool_values(context.tools), PLANNING_KEYS,
    )  # fmt: skip


def _library_folders(context: BuildContext) -> tuple[str, ...]:
    return tuple(
        f"-L${{{tool.name}.folder{index}}}" for tool in context.tools for index in range(len(tool.library_dirs))
    )


def _model_files(context: BuildContext) -> tuple[str, ...]:
    """The ONNX file and its external data."""
    return ("${model}", *(f"${{model.data{index}}}" for index in range(len(context.model.files) - 1)))


def _copies(context: BuildContext) -> tuple[Task, ...]:
    """The header, and every library that the engine needs beside it."""
    header = names.header(context.engine.name)
    tasks = [_copy(f"src/{header}", header)]
    for tool in _shipping(context):
        for index, library in enumerate(tool.libraries):
            tasks.append(_copy(f"${{{tool.name}.ship{index}}}", Path(library).name))
    return tuple(tasks)


def _shipping(context: BuildContext) -> tuple[Tool, ...]:
    """Tools whose libraries the engine needs. The C++ compiler's is OpenMP's, where the engine is linked with it."""
    return tuple(tool for tool in context.tools if tool.name != "cxx" or "-fopenmp" in context.target.link_flags)


def _copy(source: str, output: str) -> Task:
    argv = ("/bin/cp", "-L", source, "${out}/" + output)
    return Task(f"copy-{output}", "copy", f"copy {output}", argv, (source,), (output,), (), (), 10, cached=False)


def _manifest(context: BuildContext, artifacts: tuple[str, ...]) -> Task:
    library, model = names.library(context.engine.name), context.model.digest
    argv = _python("manifest", "${out}/" + names.MANIFEST, model, library, *artifacts)
    return Task(
        "manifest", "manifest", f"write {names.MANIFEST}", argv, (PROVENANCE, *artifacts), (names.MANIFEST,),
        _code(context, "manifest"), PLANNING_KEYS, _PYTHON_MB, cached=False,
    )  # fmt: skip


def _verify(context: BuildContext) -> Task:
    """Verification runs the artifacts as they are shipped. What it finds goes to a file: a departure fails no task."""
    engine, spec = context.engine, context.recipe.verify
    library, weights = names.library(engine.name), names.weights(engine.name)
    shipped = tuple(Path(path).name for tool in _shipping(context) for path in tool.libraries)
    # The file of inputs lies elsewhere in another checkout: the command names its place.
    given = () if spec.inputs is None else ("${inputs}",)
    layers = [[layer.match, layer.tolerance] for layer in context.recipe.layers if layer.tolerance is not None]
    dims = [list(pair) for pair in context.recipe.model.dims]
    question = canonical_json([replace(spec, inputs=None), dims, layers])
    # Two runtimes hold the weights, and the reference all tensors of the largest batch: some ten times those alive.
    megabytes = (6 * context.model.size + 10 * engine.arena_bytes) >> 20
    return Task(
        "verify", "verify", f"verify against {spec.against}",
        _python("verify", "${out}/" + VERIFICATION, library, weights, "${model}", question, *given),
        (ENGINE, library, weights, *shipped, *_model_files(context), *given),
        (VERIFICATION,),
        (*_code(context, "verify"), *tool_values((context.toolchain.tool(spec.against),))),
        (*PLANNING_KEYS, "verify"), _PYTHON_MB + megabytes, cached=False,
    )  # fmt: skip
