"""Compile tasks of one target: what was emitted, kernel units, the runtime's own files and those of families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.build.own_code.own_sources import header_digest, tree_digest
from bolt_build.build.planning.context import PLANNING_KEYS, BuildContext, in_package, tool_values
from bolt_build.build.planning.packages import family_package
from bolt_build.build.planning.plan_file import UnitSummary
from bolt_build.build.tasks import Task, Value, ValueKind
from bolt_build.families.base import Family
from bolt_build.runtime import include_dir, names, runner_include_dir, runner_sources, sources
from bolt_build.targets import Compiler, Target
from bolt_build.toolchain import Tool

# Most of what is compiled is headers of the standard library, a third shorter in C++17; compilers know C++20's
# designated initialisers there too. Of debugging only what a backtrace says, functions and lines: variables and types
# would take a fifth more time.
_STANDARD = "-std=c++17"
_COMPILE = (
    _STANDARD, "-Wno-c++20-extensions", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden",
    "-Wall", "-Wextra",
    "-ffile-prefix-map=${directory}=.", "-ffile-prefix-map=${package}=bolt_build",
)  # fmt: skip
_OWN = ("-I${package}/runtime/include", "-I${package}/runtime/runner", "-Isrc")
SOON_COMPILED = ("-O1",)
"""Behind other flags, for programs around engines and kernels: as fast to the eye, and compiled in two thirds of the
time."""
# nvcc's own passes, and what it hands to the C++ compiler. No -g: it would put paths into the object.
_COMPILE_CUDA = (
    _STANDARD, "-Xcompiler", "-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden", "-ccbin", "${cxx}",
)  # fmt: skip
_CUDA_SCRIPT = Path(__file__).parents[1] / "compile_cuda.py"
_COMPILE_MB = 800
_COMPILE_CUDA_MB = 1500

Values = tuple[Value, ...]


def compiles(context: BuildContext, emitted: Sequence[str]) -> tuple[Task, ...]:
    """One task a source file. What was emitted sees the headers of families and tools, a family's own file those of
    the family and of tools, the runtime only its own."""
    made = _called(_emitted(context, emitted), context.engine.units)
    return (*made, *_runtime(context), *_family_tasks(context))


def kernel_compiles(context: BuildContext, units: Sequence[UnitSummary]) -> tuple[Task, ...]:
    """The tasks of kernel units, `src/<unit>` each: equal for every plan and recipe that needs a unit."""
    values = _emitted_values(context)
    tasks = (_compile_cuda(context, f"src/{unit.name}", (), values, unit.memory_mb) for unit in units)
    return tuple(_called(tasks, units))


def _called(tasks: Iterable[Task], units: Sequence[UnitSummary]) -> Iterator[Task]:
    """The tasks, those of kernel units labelled as people call them: a unit's file has a digest for a name."""
    labels = {f"src/{unit.name}": unit.label for unit in units if unit.label}
    for task in tasks:
        label = labels.get(task.inputs[0])
        yield task if label is None else replace(task, label=f"compile {label}")


def other_compile(
    context: BuildContext, source: str, unit: str, flags: tuple[str, ...], values: Values, memory_mb: int = 0
) -> Task:
    """The task of a source that belongs to no engine, by its suffix `.cu` or `.cpp`: it sees what emitted sources see,
    and what `flags` and `values` add. `memory_mb` 0 is the usual."""
    seen = (*_emitted_values(context), *values)
    if source.endswith(".cu"):
        return _compile_cuda(context, source, (), seen, memory_mb or _COMPILE_CUDA_MB, unit, flags)
    folders = tuple(flag for family in context.families for flag in _family_flags(family))
    return _compile(context, source, unit, (), (*_OWN, *folders, *_tool_flags(_others(context)), *flags), seen)


def library_units(context: BuildContext, emitted: Sequence[str], runner: Sequence[str]) -> tuple[str, ...]:
    """The source files whose objects make the library, in the order of the link."""
    return (
        *(source for source in emitted if _is_compiled(context, source) and source not in runner),
        *(in_package(path) for path in sources(context.target.where)),
        *(_unit(family, path) for family, path in _files(context)),
    )


def family_places(family: Family) -> dict[str, str]:
    """Absolute folders of a family's headers and sources, by the names that tasks use."""
    folders = {_place(family, path): str(path.parent) for path in family.sources}
    return {f"family.{family.name}": str(family.include_dir), **folders}


def _emitted(context: BuildContext, emitted: Sequence[str]) -> list[Task]:
    others, values = _others(context), _emitted_values(context)
    # The runner includes the engine's header, an emitted file.
    header = f"src/{names.header(context.engine.name)}"
    units = {f"src/{unit.name}": unit.memory_mb for unit in context.engine.units}
    seen = tuple(flag for family in context.families for flag in _family_flags(family))
    tasks = []
    for source in emitted:
        needed = () if source in units else (header,)
        compiler = context.target.compiler
        if compiler is not None and source.endswith(f".{compiler.suffix}"):
            memory_mb = units.get(source, _COMPILE_MB)
            tasks.append(_compile_own(context, compiler, source, needed, values, memory_mb))
        elif source.endswith(".cu"):
            tasks.append(_compile_cuda(context, source, needed, values, units.get(source, _COMPILE_CUDA_MB)))
        elif source.endswith(".cpp"):
            flags = (*_OWN, *seen, *_tool_flags(others))
            runner = (_headers(runner_include_dir() / "runner.h"),) if source == "src/runner.cpp" else ()
            tasks.append(_compile(context, source, Path(source).stem, (header,), flags, (*values, *runner)))
    return tasks


def _emitted_values(context: BuildContext) -> Values:
    """What a source that is not written yet may include: every header of the runtime and of the families."""
    headers = tuple(_files_of(family, family.name, tree_digest(family.include_dir)) for family in context.families)
    runtime = Value(ValueKind.SOURCE, "runtime", tree_digest(include_dir()))
    return (*tool_values(context.tools), runtime, *headers)


def _files_of(family: Family, what: str, digest: str) -> Value:
    """Files of a family with this digest: ours, called `what`, or those of the package that adds it."""
    package = family_package(family.name)
    return Value(ValueKind.SOURCE, what, digest) if package is None else Value(ValueKind.PACKAGE, package, digest)


def _headers(source: Path) -> Value:
    """A file of ours, and the headers that it includes."""
    return Value(ValueKind.SOURCE, "headers", header_digest([source], [include_dir(), runner_include_dir()]))


def _runtime(context: BuildContext) -> list[Task]:
    tasks = []
    for path in dict.fromkeys((*sources(context.target.where), *runner_sources())):
        # The layer of a kind of device speaks to it through the tools of its targets.
        layer = _others(context) if path.stem == f"device_{context.target.where}" else ()
        # Neither has a loop over elements. So they need no instructions of the target's: a program runs up to where its
        # engine refuses the CPU, and engines of all targets have the same objects.
        plain = path.parent == runner_include_dir() or path.stem == "core"
        own = SOON_COMPILED if plain else context.target.cxx_flags
        flags, values = (
            (*_OWN, *_tool_flags(layer), *_facts(context.target, path)),
            (*tool_values([_cxx(context), *layer]), _headers(path)),
        )
        tasks.append(_compile(context, in_package(path), f"runtime_{path.stem}", (), flags, values, own))
    return tasks


def _facts(target: Target, source: Path) -> tuple[str, ...]:
    """What a layer of the runtime must know of the target's GPU, as its row has it."""
    if source.stem != "device_cuda":
        return ()
    return (f"-DBOLT_OVERLAPS={int(target.gpu is not None and target.gpu.overlaps)}",)


def _family_tasks(context: BuildContext) -> list[Task]:
    return [_family_task(context, family, path) for family, path in _files(context)]


def _family_task(context: BuildContext, family: Family, path: Path) -> Task:
    place = _place(family, path)
    flags = (
        *_OWN[:2], *_family_flags(family), *_tool_flags(_others(context)),
        f"-ffile-prefix-map=${{{place}}}={family.name}",
    )  # fmt: skip
    included = header_digest([path], [include_dir(), runner_include_dir(), family.include_dir])
    values = (*tool_values(context.tools), _files_of(family, "headers", included))
    return _compile(context, _unit(family, path), f"{family.name}_{path.stem}", (), flags, values)


def _cxx(context: BuildContext) -> Tool:
    return context.toolchain.tool("cxx")


def _others(context: BuildContext) -> tuple[Tool, ...]:
    """The target's tools beside the C++ compiler."""
    return tuple(tool for tool in context.tools if tool.name != "cxx")


def _files(context: BuildContext) -> tuple[tuple[Family, Path], ...]:
    return tuple((family, path) for family in context.families for path in family.sources)


def _place(family: Family, path: Path) -> str:
    """What the folder of one of a family's sources is called."""
    folders = sorted({file.parent for file in family.sources})
    return f"family.{family.name}.sources{folders.index(path.parent)}"


def _unit(family: Family, path: Path) -> str:
    return f"${{{_place(family, path)}}}/{path.name}"


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


def _family_flags(family: Family) -> tuple[str, ...]:
    return (f"-I${{family.{family.name}}}", f"-ffile-prefix-map=${{family.{family.name}}}={family.name}")


def _compile(
    context: BuildContext,
    source: str,
    unit: str,
    headers: tuple[str, ...],
    flags: tuple[str, ...],
    values: Values,
    own: tuple[str, ...] | None = None,
) -> Task:
    """`own` stands in the place of the target's flags."""
    output = f"build/objects/{unit}.o"
    of_target = context.target.cxx_flags if own is None else own
    argv = ("${cxx}", "-c", source, "-o", "${out}/" + output, *_COMPILE, *of_target, *flags)
    label = f"compile {Path(source).name}"
    return Task(
        f"compile-{unit}", "compile", label, argv, (source, *headers), (output,), values, PLANNING_KEYS, _COMPILE_MB
    )


def _compile_own(
    context: BuildContext, compiler: Compiler, source: str, headers: tuple[str, ...], values: Values, memory_mb: int
) -> Task:
    """By the compiler that a target of another package brings."""
    unit = Path(source).stem
    output = f"build/objects/{unit}.o"
    places = {"{source}": source, "{output}": "${out}/" + output}
    given = tuple(places.get(argument, argument) for argument in compiler.arguments)
    folders = (
        *(flag.removeprefix("-I") for flag in _OWN),
        *(f"${{family.{family.name}}}" for family in context.families),
        *(f"${{{tool.name}.include{index}}}" for tool in context.tools for index in range(len(tool.include_dirs))),
    )
    includes = tuple(f"{compiler.include}{folder}" for folder in folders)
    argv = (f"${{{compiler.tool}}}", *given, *context.target.compile_flags, *includes)
    return Task(
        f"compile-{unit}", "compile", f"compile {Path(source).name}", argv, (source, *headers), (output,), values,
        PLANNING_KEYS, memory_mb,
    )  # fmt: skip


def _is_compiled(context: BuildContext, source: str) -> bool:
    return source.endswith((".cpp", f".{context.target.kernel_suffix}"))


def _compile_cuda(
    context: BuildContext,
    source: str,
    headers: tuple[str, ...],
    values: Values,
    memory_mb: int,
    unit: str = "",
    more: tuple[str, ...] = (),
) -> Task:
    """Nothing in the task of a kernel unit is of its engine: it comes from the cache for any other that needs it."""
    unit = unit or Path(source).stem
    output = f"build/objects/{unit}.o"
    # nvcc finds its own headers, as system headers.
    tools = [
        flag
        for tool in _others(context)
        if tool.name != "nvcc"
        for index in range(len(tool.include_dirs))
        for flag in ("-isystem", f"${{{tool.name}.include{index}}}")
    ]
    script = "${package}/build/" + _CUDA_SCRIPT.name
    families = tuple(f"-I${{family.{family.name}}}" for family in context.families)
    argv = (
        "${python}", script, "${nvcc}", source, "${out}/" + output,
        *_COMPILE_CUDA, *context.target.compile_flags, *_OWN, *families, *tools, *more,
    )  # fmt: skip
    values = (*values, Value(ValueKind.SOURCE, "compile_cuda", tree_digest(_CUDA_SCRIPT)))
    return Task(
        f"compile-{unit}", "compile", f"compile {Path(source).name}", argv, (source, *headers), (output,), values,
        PLANNING_KEYS, memory_mb,
    )  # fmt: skip
