"""C++ readers of files, compiled with the sanitizers of addresses and of undefined behaviour: a finding ends them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shared_folders import RUN

from bolt_build import runtime
from bolt_build.digest import digest, digest_file
from bolt_build.own_folders import cache_folder
from bolt_build.tuning.compile import glue
from fuzzing.case import Violation
from fuzzing.commands import Finished, program

_PROGRAMS = Path(__file__).parents[2] / "data" / "fuzz"
_FLAGS = (
    "-std=c++17", "-O0", "-g1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
)  # fmt: skip
_KEPT = 8
_FINDINGS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:")


def arrays_reader(folder: Path) -> Path:
    """The runner's reader of .npy and .npz files. `folder` takes it where the user has no cache."""
    sources = runtime.runner_include_dir()
    files = [sources / "arrays.cpp", runtime.include_dir().parent / "src" / "crc32.cpp"]
    return _built("read_arrays", files, (runtime.include_dir(), sources), folder)


def weights_reader(folder: Path) -> Path:
    """The engines' reader of weights files."""
    sources = runtime.include_dir().parent / "src"
    files = [sources / name for name in ("crc32.cpp", "weights_file.cpp")]
    return _built("read_weights", files, (runtime.include_dir(),), folder)


def driver_reader(folder: Path) -> Path:
    """The tuning driver's readers of engines and of workers' lines, and its writer of results."""
    main, includes = _PROGRAMS / "read_driver.cpp", (glue.include_dir(), _driver())
    choosing = _driver() / "units" / "choosing.cpp"
    return _kept("read_driver", (main, choosing), includes, (main, driver_choosing(folder)), folder)


def driver_choosing(folder: Path) -> Path:
    """The object of what the driver reads, writes and chooses, which needs no CUDA: the same for all programs."""
    source = _driver() / "units" / "choosing.cpp"
    return _kept("choosing.o", (source,), (glue.include_dir(), _driver()), ("-c", source), folder)


def _driver() -> Path:
    return glue.driver_sources()[0].parent


def run(reader: Path, *words: str | Path, codes: Sequence[int] = (0, 3)) -> Finished:
    """A reader's answer. Raises Violation for a finding of a sanitizer, and for any exit code but `codes`."""
    done = program([reader, *words])
    if done.code not in codes or any(finding in done.err for finding in _FINDINGS):
        raise Violation(f"{reader.name} ends with {done.code}: {done.err[:3000]}")
    if done.code != 0 and not done.err.strip():
        raise Violation(f"{reader.name} ends with {done.code} without a word")
    return done


def _built(name: str, sources: Sequence[Path], includes: Sequence[Path], folder: Path) -> Path:
    """The program of `data/fuzz/NAME.cpp` and `sources`, in one unit: most of the time goes into headers."""
    main = _PROGRAMS / f"{name}.cpp"
    words = (word for source in sources for word in ("-include", source))
    return _kept(name, (main, *sources), includes, (*words, main), folder)


def _kept(
    name: str, files: Sequence[Path], includes: Sequence[Path], words: Sequence[str | Path], folder: Path
) -> Path:
    """What g++ makes of `words`; it is kept for as long as nothing changes of `files` and of what they may include."""
    included = sorted(path for place in includes for pattern in ("*.h", "*.cpp") for path in place.rglob(pattern))
    key = digest([list(_FLAGS), [digest_file(path) for path in (*files, *included)]])[:16]
    home = _home(folder)
    place = home / f"{name}-{key}"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=home) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                command = ["g++", *_FLAGS, *(f"-I{path}" for path in includes), *words, "-o", made / name]
                subprocess.run(command, check=True)
                made.rename(place)
            _forget(home, name)
    return place / name


def _home(folder: Path) -> Path:
    """The same for all of a run of tests, else the user's own, where it can be written."""
    own = cache_folder()
    if RUN in os.environ:
        folder = Path(os.environ[RUN]) / "sanitized"
    elif own is not None and os.access(next(path for path in (own, *own.parents) if path.exists()), os.W_OK):
        folder = own / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _forget(home: Path, name: str) -> None:
    """Removes programs of sources that are no more, but for the last few."""
    places = sorted(home.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)
    for old in places[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
