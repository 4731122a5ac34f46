"""Looking for each tool: its place, its version, its digest, or what is wrong and what mends it.

Another package adds tools, which its targets need, through the entry-point group `bolt_build.tools`: each entry point
is called as the tool and names a `Probe`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bolt_build.digest import digest, digest_file
from bolt_build.errors import BoltError
from bolt_build.plugins import Found, guarded_call, plugged
from bolt_build.toolchain.memory import Memory
from bolt_build.toolchain.surroundings import (
    Surroundings,
    existing,
    file_of,
    first_that_exists,
    library_folders,
    line_with,
    surroundings,
    wheel_digest,
)
from bolt_build.toolchain.tool import Tool, Toolchain, missing
from bolt_build.toolchain.wheels import installing

ONEDNN_LEAST = (3, 0)
"""Oldest oneDNN whose interface the engines use; Debian's 2.6 lacks it."""


Probe = Callable[[Surroundings, Memory], Tool]
"""Looks for one tool. What it runs of it, or reads, it may `recall` from the memory."""


def probe(names: Sequence[str], around: Surroundings | None = None) -> Toolchain:
    """Look for the tools called `names`. One that is not there, or that nothing knows, is a `Tool` with a problem."""
    where = around or surroundings()
    memory = Memory(where.memory)
    tools = tuple(_PROBES[name](where, memory) if name in _PROBES else _added(name, where, memory) for name in names)
    memory.save()
    return Toolchain(tools)


def known_tools() -> tuple[str, ...]:
    """Names that `probe` knows."""
    return tuple(_PROBES)


def plugged_tools(only: tuple[str, ...] | None = None) -> Found[Probe]:
    """The tools that other packages look for, or those of them called as one of `only`, and what is wrong with some."""
    return plugged(group="bolt_build.tools", own=_PROBES, check=_is_probe, only=only)


def _is_probe(thing: Any) -> str | None:
    return None if callable(thing) else f"is no function but a {type(thing).__name__}"


def _added(name: str, around: Surroundings, memory: Memory) -> Tool:
    """A tool that another package looks for."""
    try:
        for found in plugged_tools((name,)).checked():
            tool = guarded_call(found.offer, found.thing)(around, memory)
            return tool if tool.name == name else missing(name, f"its probe calls it '{tool.name}'", None)
    except BoltError as error:
        (first, *_) = error.diagnostics
        return missing(name, first.message, first.hint)
    return missing(name, f"bolt-build does not know how to look for a tool called '{name}'", None)


def _cxx(around: Surroundings, memory: Memory) -> Tool:
    mend = "apt-get install g++"
    path = around.program((around.compiler,) if around.compiler is not None else ("g++", "clang++", "c++"))
    if path is None and around.compiler is not None:
        why = ": it may not hold arguments" if " " in around.compiler.strip() else ""
        return missing("cxx", f"CXX names {around.compiler}, which is no program{why}", "unset CXX")
    if path is None:
        return missing("cxx", "no C++ compiler (g++, clang++ or c++) on PATH", mend)
    says = memory.recall(path, "version", lambda: line_with("", [str(path), "--version"]))
    if says is None:
        return missing("cxx", f"{path} does not answer --version", mend)
    openmp = memory.recall(path, "libgomp", lambda: _openmp_library(path)) or ""
    mark = memory.recall(path, "sha256", lambda: digest_file(path)) or ""
    return Tool(
        "cxx", str(path), _version_in(says), digest(["cxx", says, mark]), libraries=(openmp,) if openmp else ()
    )  # fmt: skip


def _onednn(around: Surroundings, memory: Memory) -> Tool:
    mend = installing("host")
    wheel = _onednn_of_wheels(around)
    if wheel is not None:
        return _onednn_at(*wheel, memory, mend)
    older = None
    for prefix in around.prefixes:
        header = prefix / "include" / "oneapi" / "dnnl" / "dnnl_version.h"
        library = first_that_exists(prefix / part / "libdnnl.so" for part in library_folders())
        if header.is_file() and library is not None:
            tool = _onednn_at(header, library, memory, mend)
            if tool.problem is None:
                return tool
            older = older or tool
    return older or missing("onednn", "oneDNN is not installed, or not its headers", mend)


def _onednn_of_wheels(around: Surroundings) -> tuple[Path, Path] | None:
    """The version header and the library, where both wheels are installed."""
    library = file_of(around.find_distribution("onednn-cpu-gomp"), "/libdnnl.so")
    header = file_of(around.find_distribution("onednn-devel-cpu-gomp"), "/oneapi/dnnl/dnnl_version.h")
    return (header, library) if header is not None and library is not None else None


def _onednn_at(header: Path, library: Path, memory: Memory, mend: str) -> Tool:
    version = _onednn_version(header)
    include, folder = header.parents[2], library.parent
    if version is None:
        return missing("onednn", f"{header} does not state a version", mend)
    text = ".".join(str(part) for part in version)
    least = ".".join(str(part) for part in ONEDNN_LEAST)
    if version[:2] < ONEDNN_LEAST:
        return missing("onednn", f"oneDNN {text} in {folder} is older than {least}", mend)
    shipped = folder / f"libdnnl.so.{version[0]}"
    if not shipped.is_file():
        return missing("onednn", f"{shipped} is not there", mend)
    mark = memory.recall(shipped, "sha256", lambda: digest_file(shipped)) or ""
    return Tool(
        "onednn", str(library), text, digest(["onednn", text, mark]), (str(include),), (str(folder),), (str(shipped),)
    )  # fmt: skip


def _onednn_version(header: Path) -> tuple[int, int, int] | None:
    try:
        text = header.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    numbers = [re.search(rf"#define DNNL_VERSION_{part} +(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    major, minor, patch = (int(found.group(1)) if found else -1 for found in numbers)
    return None if -1 in (major, minor, patch) else (major, minor, patch)


def _nvcc(around: Surroundings, memory: Memory) -> Tool:
    mend = installing("cuda")
    if around.cuda_compiler is not None:
        path = around.program((around.cuda_compiler,))
        if path is None:
            return missing("nvcc", f"CUDACXX names {around.cuda_compiler}, which is no program", "unset CUDACXX")
        return _nvcc_at(path, memory, mend)
    path = file_of(around.find_distribution("nvidia-cuda-nvcc"), "/bin/nvcc")
    if path is not None:
        problem = _mixed_cuda(around)
        if problem is not None:
            return missing("nvcc", problem, mend)
    else:
        path = around.program(("nvcc",))
    if path is None:
        return missing("nvcc", "the CUDA compiler nvcc is neither installed as a wheel nor on PATH", mend)
    return _nvcc_at(path, memory, mend)


def _nvcc_at(path: Path, memory: Memory, mend: str) -> Tool:
    says = memory.recall(path, "version", lambda: line_with("release", [str(path), "--version"]))
    stated = memory.recall(path, "home", lambda: line_with("#$ TOP=", [str(path), "--dryrun", "-x", "cu", os.devnull]))
    if says is None or stated is None:
        return missing("nvcc", f"{path} does not answer --version and --dryrun", mend)
    home = Path(os.path.normpath(stated.removeprefix("#$ TOP=")))
    libraries = existing(home / part for part in ("lib", "lib64", "targets/x86_64-linux/lib"))
    mark = memory.recall(home / "bin" / "nvcc", "sha256", lambda: digest_file(home / "bin" / "nvcc")) or ""
    include = str(home / "include")
    return Tool("nvcc", str(path), _version_in(says), digest(["nvcc", says, mark]), (include,), libraries)


def _mixed_cuda(around: Surroundings) -> str | None:
    """nvcc, crt and nvvm of different releases do not work together: ptxas then refuses what nvvm writes."""
    names = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
    found = {name: around.find_distribution(name) for name in names}
    absent = [name for name, wheel in found.items() if wheel is None]
    if absent:
        return f"the wheel {absent[0]} is not installed beside nvidia-cuda-nvcc"
    versions = {name: wheel.version for name, wheel in found.items() if wheel is not None}
    if len({tuple(version.split(".")[:2]) for version in versions.values()}) > 1:
        return "CUDA wheels of different releases: " + ", ".join(f"{name} {v}" for name, v in versions.items())
    return None


def _cutlass(around: Surroundings, memory: Memory) -> Tool:
    mend = "python -m pip install nvidia-cutlass==4.2.0.0"
    wheel = around.find_distribution("nvidia-cutlass")
    if wheel is None:
        return missing("cutlass", "CUTLASS is not installed", mend)
    header = Path(str(wheel.locate_file("cutlass_library/source/include/cutlass/version.h")))
    if not header.is_file():
        return missing("cutlass", f"{header} is not there", mend)
    include = header.parents[1]
    helpers = include.parent / "tools" / "util" / "include"  # which some of the headers include
    pairs = include.parent / "examples" / "13_two_tensor_op_fusion"  # mainloops of two products in one kernel
    folders = (str(include), str(helpers), str(pairs))
    return Tool("cutlass", str(include), wheel.version, wheel_digest(wheel), folders)


def _onnxruntime(around: Surroundings, memory: Memory) -> Tool:
    wheel = around.find_distribution("onnxruntime")
    mend = installing("verify")
    if wheel is None:
        return missing("onnxruntime", "onnxruntime is not installed", mend)
    path = Path(str(wheel.locate_file("onnxruntime")))
    return Tool("onnxruntime", str(path), wheel.version, wheel_digest(wheel))


def _openmp_library(compiler: Path) -> str:
    """libgomp of the compiler, which an engine ships; empty where it found none: its answer is then no path."""
    found = line_with("", [str(compiler), "-print-file-name=libgomp.so.1"])
    if found is None or not os.path.isabs(found) or not os.path.isfile(found):
        return ""
    return os.path.join(os.path.realpath(os.path.dirname(found)), os.path.basename(found))


def _version_in(line: str) -> str:
    numbers = re.findall(r"\d+(?:\.\d+)+", line)
    return numbers[-1] if numbers else line


_PROBES: dict[str, Probe] = {
    "cxx": _cxx,
    "onednn": _onednn,
    "nvcc": _nvcc,
    "cutlass": _cutlass,
    "onnxruntime": _onnxruntime,
}
