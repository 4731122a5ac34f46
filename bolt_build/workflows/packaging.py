"""An engine as an archive that CMake and pkg-config find, with an example; its debug information in another archive;
and as a Python wheel.

Equal builds make equal archives: members are sorted, and have neither times nor owners.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import told
from bolt_build.build.result import verification_passed
from bolt_build.digest import digest_file
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.runtime import names
from bolt_build.scratch import scratch_folder
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.licences import Licence, licences
from bolt_build.workflows.package_texts import package_text
from bolt_build.workflows.wheel import LEVEL, write_wheel

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
    """The archives and the wheel of one target, and whether verification passed: None where it was not run here."""

    target: str
    archive: Path
    debug: Path
    wheel: Path
    verified: bool | None


def package(engine: BuiltEngine, folder: Path, version: str | None = None) -> PackagedEngine:
    """Writes `NAME-TARGET.tar.gz`, `NAME-TARGET-debug.tar.gz` and a wheel into `folder`, of `version` if one is given.

    Raises BoltError: "changed-engine" where a file is not what the manifest says it is, "not-verified" where the engine
    departs from the reference, "missing-tool" without objcopy, "strip-failed" where that fails, and where a file cannot
    be read or written.
    """
    _require_as_built(engine)
    verified = verification_passed(engine.directory)
    if verified is False:
        message = f"{os.path.relpath(engine.directory.path)} departs from the reference"
        hint = "see what departs with: bolt-build verify"
        raise BoltError([Diagnostic("not-verified", message, hint=hint)], ExitCode.VERIFY_FAILED)
    base = f"{engine.plan.engine.name}-{engine.target}"
    archive, debug = folder / f"{base}.tar.gz", folder / f"{base}-debug.tar.gz"
    with told(folder, "write them to a folder of your own with --out DIR"):
        library, symbols = _split(engine.library)
        texts = licences(engine.directory.path / names.MANIFEST, _others(engine))
        _write(archive, base, _members(engine, library, texts, version))
        _write(debug, base, {f"lib/{engine.library.name}.debug": symbols})
        wheel = write_wheel(folder, _wheel_files(engine, library), texts, version)
    return PackagedEngine(engine.target, archive, debug, wheel, verified)


def _require_as_built(engine: BuiltEngine) -> None:
    """Raises BoltError "changed-engine". What is packed goes to others, whom the manifest is to tell what they have: so
    contents count, not sizes alone."""
    here = os.path.relpath(engine.directory.path)
    with told(engine.directory.path):
        wrong = [f"{here}: {why}" for why in _unlike_manifest(engine.directory.path)]
    if wrong:
        hint = "build it again: what was changed is made anew"
        raise BoltError([Diagnostic("changed-engine", why, hint=hint) for why in wrong])


def _unlike_manifest(folder: Path) -> Iterator[str]:
    try:
        stated = json.loads((folder / names.MANIFEST).read_text(encoding="utf-8"))["subject"]
        digests = {each["name"]: each["digest"]["sha256"] for each in stated}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        yield f"{names.MANIFEST} is missing or was changed"
        return
    for name, expected in sorted(digests.items()):
        try:
            found = digest_file(folder / name)
        except FileNotFoundError:
            found = None
        if found != expected:
            yield f"{name} is missing or was changed: it is not what {names.MANIFEST} says"


def package_files(engine: BuiltEngine, version: str | None = None) -> dict[str, bytes]:
    """The files of the first archive by their paths in it, for other ways to pack them. Raises as `package` does."""
    with told(engine.directory.path):
        library, _ = _split(engine.library)
        texts = licences(engine.directory.path / names.MANIFEST, _others(engine))
        return _members(engine, library, texts, version)


def _others(engine: BuiltEngine) -> tuple[str, ...]:
    """Libraries that lie beside the engine's."""
    return tuple(each for each in engine.plan.graph.artifacts if ".so" in each and each != engine.library.name)


def _wheel_files(engine: BuiltEngine, library: bytes) -> dict[str, bytes]:
    paths = (engine.weights, *(engine.directory.path / name for name in (names.MANIFEST, *_others(engine))))
    return {engine.library.name: library} | {path.name: path.read_bytes() for path in paths}


def _members(engine: BuiltEngine, library: bytes, texts: tuple[Licence, ...], version: str | None) -> dict[str, bytes]:
    """Files of the package by their paths in it."""
    name, here, others = engine.plan.engine.name, engine.directory.path, _others(engine)
    words = {
        "name": name, "target": engine.target, "identifier": names.identifier(name), "symbol": names.symbol(name),
        "library": engine.library.name, "header": names.header(name), "weights": engine.weights.name,
        "version": version or "0",
    }  # fmt: skip
    found = {
        "README": _README.format(**words).encode(),
        f"include/{words['header']}": (here / words["header"]).read_bytes(),
        f"lib/{engine.library.name}": library,
        f"lib/cmake/{name}/{name}Config.cmake": package_text("config.cmake.j2", words),
        f"lib/pkgconfig/{name}.pc": package_text("engine.pc.j2", words),
        f"share/{name}/{engine.weights.name}": engine.weights.read_bytes(),
        f"share/{name}/{names.MANIFEST}": (here / names.MANIFEST).read_bytes(),
        "example/CMakeLists.txt": package_text("CMakeLists.txt.j2", words),
        "example/main.cpp": package_text("main.cpp.j2", words),
    }
    found |= {f"lib/{each}": (here / each).read_bytes() for each in others}
    found |= {f"licences/{each.name}": each.text for each in texts}
    sums = (f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(found.items()))
    return found | {"SHA256SUMS": "".join(sums).encode()}


def _split(library: Path) -> tuple[bytes, bytes]:
    """The library without its debug information, which it names; and that information."""
    tool = shutil.which(_TOOL)
    if tool is None:
        hint = "install binutils, which every C++ compiler comes with"
        raise BoltError([Diagnostic("missing-tool", f"{_TOOL} is not installed", hint=hint)], ExitCode.TOOL_MISSING)
    debug = f"{library.name}.debug"
    with scratch_folder() as folder:
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
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=LEVEL, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, data in sorted(members.items()):
                member = tarfile.TarInfo(f"{base}/{name}")
                member.size, member.mode = len(data), 0o755 if ".so" in Path(name).name else 0o644
                archive.addfile(member, io.BytesIO(data))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
