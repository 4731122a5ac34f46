"""From an engine plan's summary to tasks: emit, compile, link, weights, copies, manifest, verify.

What kind of machine a target is shows here only in the compiler that a file's suffix asks for: flags come from its row,
headers from its families, libraries from its tools.
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
    "-std=c++17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wall", "-Wextra",
    "-ffile-prefix-map=${directory}=.", "-ffile-prefix-map=${package}=bolt_build",
)  # fmt: skip
_OWN = ("-I${package}/runtime/include", "-I${package}/runtime/runner", "-Isrc")
_LINK = ("-Wl,--build-id=none", "-Wl,-rpath,$ORIGIN", "-Wl,--as-needed", "-Wl,-z,relro,-z,now")
_SHARED = ("-shared", "-Wl,--no-undefined", "-Wl,-Bsymbolic")
# nvcc's own passes, and what it hands to the C++ compiler. No -g: it would put paths into the object.
_COMPILE_CUDA = (
    "-std=c++17",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden",
    "-ccbin",
    "${cxx}",
)
_CUDA_SCRIPT = Path(__file__).with_name("compile_cuda.py")
_COMPILE_MB = 800
_COMPILE_CUDA_MB = 1500
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
    units = tuple(unit.name for unit in context.engine.units)
    emitted = tuple(f"src/{source}" for source in (*context.engine.sources, *units, "runner.cpp"))
    compiles = _compiles(context, emitted)
    tasks = [_emit(emitted), *compiles, _weights(context), *_copies(context)]
    objects = {task.inputs[0]: task.outputs[0] for task in compiles}
    runner_units = ("src/runner.cpp", *(_in_package(path) for path in runner_sources()))
    library_units = (*(s for s in emitted if _compiled(s) and s not in runner_units), *_runtime_units(context))
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
    return places


def _in_package(path: Path) -> str:
    return "${package}/" + str(path.relative_to(include_dir().parents[1]))


def _runtime_units(context: BuildContext) -> tuple[str, ...]:
    return tuple(_in_package(path) for path in sources(context.target.where))


def _python(action: str, *arguments: str) -> tuple[str, ...]:
    return ("${python}", "${package}/build/action.py", action, *arguments)


def _tool_values(tools: Sequence[Tool]) -> tuple[tuple[str, str], ...]:
    return tuple((f"tool:{tool.name}", tool.digest) for tool in tools)


def _emit(emitted: tuple[str, ...]) -> Task:
    return Task(
        "emit", "emit", "emit sources", _python("emit", "${out}"), (ENGINE, PROVENANCE), emitted,
        (("source:emit", part_digest("emit")),), _PLANNING_KEYS, _PYTHON_MB, cached=False,
    )  # fmt: skip


def _compiled(source: str) -> bool:
    return source.endswith((".cpp", ".cu"))


def _compiles(context: BuildContext, emitted: tuple[str, ...]) -> tuple[Task, ...]:
    """One task a source file: what was emitted sees the headers of families and tools, the runtime only its own."""
    compiler = context.toolchain.tool("cxx")
    runtime = (*_tool_values((compiler,)), ("source:runtime", part_digest("runtime")))
    others = tuple(tool for tool in context.tools if tool.name != "cxx")
    headers = tuple((f"source:{family.name}", tree_digest(family.include_dir)) for family in context.families)
    # The runner includes the engine's header, an emitted file.
    header = f"src/{names.header(context.engine.name)}"
    values = (*runtime, *_tool_values(others), *headers)
    units = {f"src/{unit.name}": unit.memory_mb for unit in context.engine.units}
    tasks = []
    for source in emitted:
        if source.endswith(".cu"):
            needed = () if source in units else (header,)
            memory = units.get(source, _COMPILE_CUDA_MB)
            tasks.append(_compile_cuda(context, source, needed, _family_flags(context), values, memory))
        elif _compiled(source):
            tasks.append(
                _compile(context, source, (header,), (*_OWN, *_family_flags(context), *_maps(context)), values)
            )
    for path in (*sources(context.target.where), *runner_sources()):
        # The layer of a kind of device speaks to it through the tools of its targets.
        layer = _tool_flags(others) if path.stem == f"device_{context.target.where}" else ()
        task = _compile(
            context, _in_package(path), (), (*_OWN, *layer), (*runtime, *_tool_values(others if layer else ()))
        )
        if task not in tasks:
            tasks.append(task)
    return tuple(tasks)


def _tool_flags(tools: Sequence[Tool]) -> tuple[str, ...]:
    return tuple(
        flag
        for tool in tools
        for index in range(len(tool.include_dirs))
        for flag in (
            f"-I${{{tool.name}.include{index}}}",
            f"-ffile-prefix-map=${{{tool.name}.include{index}}}={tool.name}",
        )
    )


def _family_flags(context: BuildContext) -> tuple[str, ...]:
    return tuple(f"-I${{family.{family.name}}}" for family in context.families)


def _maps(context: BuildContext) -> tuple[str, ...]:
    tools = _tool_flags([tool for tool in context.tools if tool.name != "cxx"])
    return (*tools, *(f"-ffile-prefix-map=${{family.{f.name}}}={f.name}" for f in context.families))


def _compile(
    context: BuildContext,
    source: str,
    headers: tuple[str, ...],
    flags: tuple[str, ...],
    values: tuple[tuple[str, str], ...],
) -> Task:
    unit = Path(source).stem if source.startswith("src/") else f"runtime_{Path(source).stem}"
    output = f"build/objects/{unit}.o"
    # A target's flags are those of the compiler of its plans.
    own = context.target.compile_flags if context.target.gpu is None else ("-O3",)
    argv = ("${cxx}", "-c", source, "-o", "${out}/" + output, *_COMPILE, *own, *flags)
    label = f"compile {Path(source).name}"
    return Task(
        f"compile-{unit}", "compile", label, argv, (source, *headers), (output,), values, _PLANNING_KEYS, _COMPILE_MB
    )


def _compile_cuda(
    context: BuildContext,
    source: str,
    headers: tuple[str, ...],
    flags: tuple[str, ...],
    values: tuple[tuple[str, str], ...],
    memory_mb: int,
) -> Task:
    """Nothing in the task of a kernel unit is of its engine: it comes from the cache for any other that needs it."""
    unit = Path(source).stem
    output = f"build/objects/{unit}.o"
    # nvcc finds its own headers, as system headers.
    tools = [
        flag
        for tool in context.tools
        if tool.name not in ("cxx", "nvcc")
        for index in range(len(tool.include_dirs))
        for flag in ("-isystem", f"${{{tool.name}.include{index}}}")
    ]
    script = "${package}/build/" + _CUDA_SCRIPT.name
    argv = (
        "${python}", script, "${nvcc}", source, "${out}/" + output,
        *_COMPILE_CUDA, *context.target.compile_flags, *_OWN, *flags, *tools,
    )  # fmt: skip
    values = (*values, ("source:compile_cuda", tree_digest(_CUDA_SCRIPT)))
    return Task(
        f"compile-{unit}", "compile", f"compile {Path(source).name}", argv, (source, *headers), (output,), values,
        _PLANNING_KEYS, memory_mb,
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
    argv = _python("manifest", "${out}/" + names.MANIFEST, names.library(context.engine.name), *artifacts)
    return Task(
        "manifest", "manifest", f"write {names.MANIFEST}", argv, (ENGINE, PROVENANCE, *artifacts), (names.MANIFEST,),
        (("source:manifest", part_digest("manifest")),), _PLANNING_KEYS, _PYTHON_MB, cached=False,
    )  # fmt: skip


def _verify(context: BuildContext) -> Task:
    """Verification runs the artifacts as they are shipped. What it finds goes to a file: a departure fails no task."""
    engine, spec = context.engine, context.recipe.verify
    library, weights = names.library(engine.name), names.weights(engine.name)
    shipped = tuple(Path(path).name for tool in _shipping(context) for path in tool.libraries)
    question = canonical_json([spec, [list(pair) for pair in context.recipe.model.dims]])
    megabytes = (6 * context.model.size + 4 * engine.arena_bytes) >> 20
    return Task(
        "verify", "verify", f"verify against {spec.against}",
        _python("verify", "${out}/" + VERIFICATION, library, weights, "${model}", question),
        (ENGINE, library, weights, *shipped, *_model_files(context)),
        (VERIFICATION,),
        (("source:verify", part_digest("verify")), *_tool_values((context.toolchain.tool(spec.against),))),
        (*_PLANNING_KEYS, "verify"), _PYTHON_MB + megabytes, cached=False,
    )  # fmt: skip
