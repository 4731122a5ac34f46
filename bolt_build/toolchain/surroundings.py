"""Where tools are looked for: wheels of the running environment, PATH, and the usual prefixes."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from bolt_build.digest import digest, digest_bytes
from bolt_build.toolchain.memory import memory_file


@dataclass(frozen=True)
class Surroundings:
    """Where tools are looked for: tests hand in their own."""

    search_path: str
    prefixes: tuple[Path, ...]
    memory: Path | None
    find_distribution: Callable[[str], Distribution | None]
    cuda_compiler: str | None = None
    """What the variable CUDACXX names: taken instead of any other CUDA compiler."""
    compiler: str | None = None
    """What the variable CXX names: taken instead of any other C++ compiler."""

    def program(self, names: Sequence[str]) -> Path | None:
        """The first of `names` that is on the search path, as an absolute path: tasks run elsewhere."""
        for name in names:
            found = shutil.which(name, path=self.search_path)
            if found is not None:
                return Path(os.path.abspath(found))
        return None


def surroundings() -> Surroundings:
    """The running environment: its wheels, PATH, its own prefix, and the system's."""
    return Surroundings(
        search_path=os.environ.get("PATH", os.defpath),
        prefixes=tuple(dict.fromkeys((Path(sys.prefix), Path("/usr/local"), Path("/usr")))),
        memory=memory_file(),
        find_distribution=_installed,
        cuda_compiler=os.environ.get("CUDACXX") or None,
        compiler=os.environ.get("CXX") or None,
    )


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _record(wheel: Distribution) -> str:
    return wheel.read_text("RECORD") or ""


def file_of(wheel: Distribution | None, ending: str) -> Path | None:
    """The installed file of `wheel` whose path ends so, if it is there."""
    if wheel is None:
        return None
    for row in csv.reader(_record(wheel).splitlines()):
        if row and f"/{row[0]}".endswith(ending):
            path = Path(os.path.normpath(str(wheel.locate_file(row[0]))))
            return path if path.is_file() else None
    return None


def wheel_digest(wheel: Distribution) -> str:
    """Of the hashes that the wheel states of its own files: those that installing writes differ from place to place."""
    name = wheel.metadata["Name"]
    stated = sorted(line for line in _record(wheel).splitlines() if ".dist-info/" not in line and ".pyc," not in line)
    return digest([name, wheel.version, digest_bytes("\n".join(stated).encode())])


def library_folders() -> tuple[str, ...]:
    multiarch = sysconfig.get_config_var("MULTIARCH")
    return ("lib", "lib64", f"lib/{multiarch}") if multiarch else ("lib", "lib64")


def existing(folders: Iterable[Path]) -> tuple[str, ...]:
    return tuple(str(folder) for folder in folders if folder.is_dir())


def first_that_exists(paths: Iterable[Path]) -> Path | None:
    """The first of `paths` that is a file."""
    return next((path for path in paths if path.is_file()), None)


def _says(argv: list[str]) -> str | None:
    """What a program prints, in English; None where it cannot be run or fails."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env=english,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def line_with(part: str, argv: list[str]) -> str | None:
    """The first line that a program prints with `part` in it."""
    return next((line.strip() for line in (_says(argv) or "").splitlines() if part in line and line.strip()), None)
