"""From an engine plan's summary to tasks: emit, compile, link, weights, copies, manifest, verify.

Nothing here knows what kind of machine a target is: flags come from its row, headers from its families, libraries from
its tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.model_file import ModelFile
from bolt_build.build.own_sources import part_digest, tree_digest
from bolt_build.build.plan_file import EngineSummary
from bolt_build.digest import canonical_json
from bolt_build.emit import names
from bolt_build.families.base import Family
from bolt_build.planner.tasks import Task, TaskGraph
from bolt_build.runtime import include_dir, runner_sources, sources
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import Target
from bolt_build.toolchain import Tool, Toolchain

ENGINE = "engine.json"
PROVENANCE = "provenance.json"
RECIPE = "recipe.json"
VERIFICATION = "verify.json"

_PLANNING_KEYS = ("name", "model", "targets", "policy", "layers", "engine")
_COMPILE = (
    "-std=c++20", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra",
    "-ffile-prefix-map=${directory}=.", "-ffile-prefix-map=${package}=bolt_build",
)  # fmt: skip
_LINK = ("-Wl,--build-id=none", "-Wl,-rpath,$ORIGIN", "-Wl,--as-needed", "-Wl,-z,relro,-z,now")
_SHARED = ("-shared", "-Wl,--no-undefined", "-Wl,-Bsymbolic")
_COMPILE_MB = 800
_PYTHON_MB = 300


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


def task_graph(context: BuildContext) -> TaskGraph:
    """Every task of one target, each behind what it needs."""
    name = context.engine.name
    emitted = tuple(f"src/{source}" for source in (*context.engine.sources, "runner.cpp"))
    compiles = _compiles(context, emitted)
    tasks = [_emit(emitted), *compiles, _weights(context), *_copies(context)]
    objects = {task.inputs[0]: task.outputs[0] for task in compiles}
    runner_units = ("src/runner.cpp", *(_in_package(path) for path in runner_sources()))
    emitted_units = tuple(s for s in emitted if s.endswith(".cpp") and s not in runner_units)
    library_units = (*emitted_units, *_runtime_units(context), *(_unit(f, path) for f, path in _family_files(context)))
    tasks.append(_link_library(context, tuple(objects[unit] for unit in library_units)))
    tasks.append(_link_runner(context, tuple(objects[unit] for unit in runner_units)))
    shipped = tuple(output for task in tasks if task.rule in ("link", "copy", "weights") for output in task.outputs)
    tasks.append(_manifest(context, shipped))
    artifacts = (*shipped, names.MANIFEST)
    if context.verified:
        tasks.append(_verify(context))
        artifacts = (*artifacts, VERIFICATION)
    return TaskGraph(context.recipe.name, context.target.name, f"{name}/{context.target.name}", tuple(tasks), artifacts)


def places_of(context: BuildContext, directory: Path, python: str, package: Path) -> dict[str, str]:
    """Absolute paths by the names that the tasks use."""
    places = {"directory": str(directory), "python": python, "package": str(package), "model": str(context.model.path)}
    places |= {f"model.data{index}": file.path for index, file in enumerate(context.model.files[1:])}
    for tool in context.toolchain.tools:
        places[tool.name] = tool.path or ""
        for kind, paths in (("include", tool.include_dirs), ("folder", tool.library_dirs), ("ship", tool.libraries)):
            places |= {f"{tool.name}.{kind}{index}": path for index, path in enumerate(paths)}
    for family in context.families:
        places[f"family.{family.name}"] = str(family.include_dir)
        places |= {_place(family, path): str(path.parent) for path in family.sources}
    return places


def _in_package(path: Path) -> str:
    return "${package}/" + str(path.relative_to(include_dir().parents[1]))


def _runtime_units(context: BuildContext) -> tuple[str, ...]:
    return tuple(_in_package(path) for path in sources(context.target.where))


def _family_files(context: BuildContext) -> tuple[tuple[Family, Path], ...]:
    return tuple((family, path) for family in context.families for path in family.sources)


def _place(family: Family, path: Path) -> str:
    """What the folder of one of a family's sources is called."""
    folders = sorted({file.parent for file in family.sources})
    return f"family.{family.name}.sources{folders.index(path.parent)}"


def _unit(family: Family, path: Path) -> str:
    return f"${{{_place(family, path)}}}/{path.name}"


def _python(action: str, *arguments: str) -> tuple[str, ...]:
    return ("${python}", "${package}/build/action.py", action, *arguments)


def _tool_values(tools: Sequence[Tool]) -> tuple[tuple[str, str], ...]:
    return tuple((f"tool:{tool.name}", tool.digest) for tool in tools)


def _emit(emitted: tuple[str, ...]) -> Task:
    return Task(
        "emit", "emit", "emit sources", _python("emit", "${out}"), (ENGINE, PROVENANCE), emitted,
        (("source:emit", part_digest("emit")),), _PLANNING_KEYS, _PYTHON_MB, cached=False,
    )  # fmt: skip


def _compiles(context: BuildContext, emitted: tuple[str, ...]) -> tuple[Task, ...]:
    """One task a C++ file: what was emitted sees the headers of families and tools, a family's own file those of the
    family and of tools, the runtime only its own."""
    compiler = context.toolchain.tool("cxx")
    tools, libraries = _tool_flags(context), _tool_values([t for t in context.tools if t.name != "cxx"])
    own = ("-I${package}/runtime/include", "-I${package}/runtime/runner")
    runtime = (*_tool_values((compiler,)), ("source:runtime", part_digest("runtime")))
    # The runner includes the engine's header, an emitted file.
    header = f"src/{names.header(context.engine.name)}"
    seen = tuple(flag for family in context.families for flag in _family_flags(family))
    headers = tuple(value for family in context.families for value in _family_values(family))
    tasks = []
    for source in emitted:
        if source.endswith(".cpp"):
            flags, values = (*own, "-Isrc", *seen, *tools), (*runtime, *libraries, *headers)
            tasks.append(_compile(context, source, Path(source).stem, (header,), flags, values))
    tasks += [
        _compile(context, _in_package(path), f"runtime_{path.stem}", (), (*own, "-Isrc"), runtime)
        for path in dict.fromkeys((*sources(context.target.where), *runner_sources()))
    ]
    for family, path in _family_files(context):
        place = _place(family, path)
        flags = (*own, *_family_flags(family), *tools, f"-ffile-prefix-map=${{{place}}}={family.name}")
        values = (*runtime, *libraries, *_family_values(family), (f"source:{place}", tree_digest(path.parent)))
        tasks.append(_compile(context, _unit(family, path), f"{family.name}_{path.stem}", (), flags, values))
    return tuple(tasks)


def _tool_flags(context: BuildContext) -> tuple[str, ...]:
    return tuple(
        flag
        for tool in context.tools
        for index in range(len(tool.include_dirs))
        for flag in (
            f"-I${{{tool.name}.include{index}}}",
            f"-ffile-prefix-map=${{{tool.name}.include{index}}}={tool.name}",
        )
    )


def _family_flags(family: Family) -> tuple[str, ...]:
    return (f"-I${{family.{family.name}}}", f"-ffile-prefix-map=${{family.{family.name}}}={family.name}")


def _family_values(family: Family) -> tuple[tuple[str, str], ...]:
    """Digest of the headers that its emitted code includes."""
    return ((f"source:{family.name}", tree_digest(family.include_dir)),)


def _compile(
    context: BuildContext,
    source: str,
    unit: str,
    headers: tuple[str, ...],
    flags: tuple[str, ...],
    values: tuple[tuple[str, str], ...],
) -> Task:
    output = f"build/objects/{unit}.o"
    argv = ("${cxx}", "-c", source, "-o", "${out}/" + output, *_COMPILE, *context.target.compile_flags, *flags)
    label = f"compile {Path(source).name}"
    return Task(
        f"compile-{unit}", "compile", label, argv, (source, *headers), (output,), values, _PLANNING_KEYS, _COMPILE_MB
    )


def _link_library(context: BuildContext, objects: tuple[str, ...]) -> Task:
    library = names.library(context.engine.name)
    exports = f"src/{names.EXPORTS}"
    argv = (
        "${cxx}", *_SHARED, *_LINK, f"-Wl,-soname,{library}", f"-Wl,--version-script={exports}",
        "-o", "${out}/" + library, *objects, *_library_folders(context), *context.target.link_flags,
    )  # fmt: skip
    return Task(
        "link-library", "link", f"link {library}", argv, (*objects, exports), (library,),
        _tool_values(context.tools), _PLANNING_KEYS,
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
        _tool_values(context.tools), _PLANNING_KEYS,
    )  # fmt: skip


def _library_folders(context: BuildContext) -> tuple[str, ...]:
    return tuple(
        f"-L${{{tool.name}.folder{index}}}" for tool in context.tools for index in range(len(tool.library_dirs))
    )


def _weights(context: BuildContext) -> Task:
    file = names.weights(context.engine.name)
    megabytes = (4 * context.model.size + 2 * context.engine.weight_bytes) >> 20
    return Task(
        "weights", "weights", f"write {file}", _python("weights", "${model}", "${out}/" + file),
        _model_files(context), (file,),
        (("layout", context.engine.layout_digest), ("source:weights", part_digest("weights"))),
        _PLANNING_KEYS, _PYTHON_MB + megabytes, cached=False,
    )  # fmt: skip


def _model_files(context: BuildContext) -> tuple[str, ...]:
    """The ONNX file and its external data."""
    return ("${model}", *(f"${{model.data{index}}}" for index in range(len(context.model.files) - 1)))


def _copies(context: BuildContext) -> tuple[Task, ...]:
    """The header, and every library that the engine needs beside it."""
    header = names.header(context.engine.name)
    tasks = [_copy(f"src/{header}", header)]
    for tool in context.tools:
        for index, library in enumerate(tool.libraries):
            tasks.append(_copy(f"${{{tool.name}.ship{index}}}", Path(library).name))
    return tuple(tasks)


def _copy(source: str, output: str) -> Task:
    argv = ("/bin/cp", "-L", source, "${out}/" + output)
    return Task(f"copy-{output}", "copy", f"copy {output}", argv, (source,), (output,), (), (), 10, cached=False)


def _manifest(context: BuildContext, artifacts: tuple[str, ...]) -> Task:
    argv = _python("manifest", "${out}/" + names.MANIFEST, names.library(context.engine.name), *artifacts)
    return Task(
        "manifest", "manifest", f"write {names.MANIFEST}", argv, (ENGINE, PROVENANCE, *artifacts), (names.MANIFEST,),
        (("source:manifest", part_digest("manifest")),), _PLANNING_KEYS, _PYTHON_MB, cached=False,
    )  # fmt: skip


def _verify(context: BuildContext) -> Task:
    """Verification runs the artifacts as they are shipped. What it finds goes to a file: a departure fails no task."""
    engine, spec = context.engine, context.recipe.verify
    library, weights = names.library(engine.name), names.weights(engine.name)
    shipped = tuple(Path(path).name for tool in context.tools for path in tool.libraries)
    question = canonical_json([spec, [list(pair) for pair in context.recipe.model.dims]])
    # Two runtimes hold the weights, and the reference all tensors of the largest batch: some ten times those alive.
    megabytes = (6 * context.model.size + 10 * engine.arena_bytes) >> 20
    return Task(
        "verify", "verify", f"verify against {spec.against}",
        _python("verify", "${out}/" + VERIFICATION, library, weights, "${model}", question),
        (ENGINE, library, weights, *shipped, *_model_files(context)),
        (VERIFICATION,),
        (("source:verify", part_digest("verify")), *_tool_values((context.toolchain.tool(spec.against),))),
        (*_PLANNING_KEYS, "verify"), _PYTHON_MB + megabytes, cached=False,
    )  # fmt: skip
