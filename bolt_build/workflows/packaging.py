"""An engine as an archive that CMake and pkg-config find, with an example; its debug information in another archive.

Equal builds make equal archives: members are sorted, and have neither times nor owners.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

import bolt_build
from bolt_build.build.builder import verification_passed
from bolt_build.build.files import told
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.runtime import names
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.licences import licences

_TOOL = "objcopy"
_README = """\
{name} for {target}

include/, lib/    the engine: link with find_package({name}) or pkg-config {name}
share/{name}/     its weights and the manifest of its build
example/          a program that runs it; CMakeLists.txt says how to build it
licences/         of all that is in it
SHA256SUMS        of every file here

lib/{library} is without debug information. The manifest has the digest of the one with it.
"""


@dataclass(frozen=True)
class PackagedEngine:
    """The archives of one target, and whether verification passed: None where it was not run here."""

    target: str
    archive: Path
    debug: Path
    verified: bool | None


def package(engine: BuiltEngine, folder: Path) -> PackagedEngine:
    """Writes `NAME-TARGET.tar.gz` and `NAME-TARGET-debug.tar.gz` into `folder`.

    Raises BoltError: "not-verified" where the engine departs from the reference, "missing-tool" without objcopy,
    "strip-failed" where that fails, and where a file cannot be read or written.
    """
    verified = verification_passed(engine.directory)
    if verified is False:
        message = f"{os.path.relpath(engine.directory.path)} departs from the reference"
        hint = "see what departs with: bolt-build verify"
        raise BoltError([Diagnostic("not-verified", message, hint=hint)], ExitCode.VERIFY_FAILED)
    base = f"{engine.plan.engine.name}-{engine.target}"
    archive, debug = folder / f"{base}.tar.gz", folder / f"{base}-debug.tar.gz"
    with told(folder, "write them to a folder of your own with --out DIR"):
        library, symbols = _split(engine.library)
        _write(archive, base, _members(engine, library))
        _write(debug, base, {f"lib/{engine.library.name}.debug": symbols})
    return PackagedEngine(engine.target, archive, debug, verified)


def _members(engine: BuiltEngine, library: bytes) -> dict[str, bytes]:
    """Files of the package by their paths in it."""
    name, here = engine.plan.engine.name, engine.directory.path
    others = tuple(
        each for each in engine.plan.graph.artifacts if ".so" in each and each != engine.library.name
    )  # fmt: skip
    words = {
        "name": name, "target": engine.target, "identifier": names.identifier(name), "symbol": names.symbol(name),
        "library": engine.library.name, "header": names.header(name), "weights": engine.weights.name,
        "version": bolt_build.__version__,
    }  # fmt: skip
    found = {
        "README": _README.format(**words).encode(),
        f"include/{words['header']}": (here / words["header"]).read_bytes(),
        f"lib/{engine.library.name}": library,
        f"lib/cmake/{name}/{name}Config.cmake": _text("config.cmake.j2", words),
        f"lib/pkgconfig/{name}.pc": _text("engine.pc.j2", words),
        f"share/{name}/{engine.weights.name}": engine.weights.read_bytes(),
        f"share/{name}/{names.MANIFEST}": (here / names.MANIFEST).read_bytes(),
        "example/CMakeLists.txt": _text("CMakeLists.txt.j2", words),
        "example/main.cpp": _text("main.cpp.j2", words),
    }
    found |= {f"lib/{each}": (here / each).read_bytes() for each in others}
    found |= {f"licences/{each.name}": each.text for each in licences(here / names.MANIFEST, others)}
    sums = (f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(found.items()))
    return found | {"SHA256SUMS": "".join(sums).encode()}


def _split(library: Path) -> tuple[bytes, bytes]:
    """The library without its debug information, which it names; and that information."""
    tool = shutil.which(_TOOL)
    if tool is None:
        hint = "install binutils, which every C++ compiler comes with"
        raise BoltError([Diagnostic("missing-tool", f"{_TOOL} is not installed", hint=hint)], ExitCode.TOOL_MISSING)
    debug = f"{library.name}.debug"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copyfile(library, folder / library.name)
        for arguments in (
            ("--only-keep-debug", library.name, debug),
            ("--strip-debug", f"--add-gnu-debuglink={debug}", library.name),
        ):
            done = subprocess.run([tool, *arguments], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                message = f"{_TOOL} {' '.join(arguments)}: {done.stderr.strip()}"
                raise BoltError([Diagnostic("strip-failed", message)], ExitCode.TASK_FAILED)
        return (folder / library.name).read_bytes(), (folder / debug).read_bytes()


def _write(path: Path, base: str, members: Mapping[str, bytes]) -> None:
    """A compressed archive of one folder `base`, by a temporary name and a rename. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with (
            temporary.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, data in sorted(members.items()):
                member = tarfile.TarInfo(f"{base}/{name}")
                member.size, member.mode = len(data), 0o755 if ".so" in Path(name).name else 0o644
                archive.addfile(member, io.BytesIO(data))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _text(template: str, words: Mapping[str, str]) -> bytes:
    return _environment().get_template(template).render(words).encode()


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bolt_build.workflows", "templates"), undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
