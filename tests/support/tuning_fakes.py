"""The driver's supervisor without a GPU: a table of problems that nothing computes, and a worker that is a script."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared_folders import entered

from bolt_build.tuning.compile import glue
from bolt_build.tuning.exchange.results import Results, Row, read_results

DATA = Path(__file__).parents[1] / "data" / "tuning"


@functools.cache
def supervisor() -> Path:
    """The driver, built once a test run, with stand-ins for what needs CUDA."""
    with entered("supervisor") as folder:
        if not (folder / "run").exists():
            _build_supervisor(folder)
    return folder / "run"


def _build_supervisor(folder: Path) -> None:
    units = [path for path in glue.driver_units() if path.suffix == ".cpp" and path.stem != "measuring"]
    includes = [f"-I{path}" for path in (glue.include_dir(), units[0].parents[1])]
    flags = ("-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror")
    _run(["g++", *flags, *includes, *units, DATA / "no_gpu.cpp", "-o", folder / "run"])


def candidates(
    folder: Path,
    trials: Sequence[Sequence[int]],
    *,
    version: str = "BOLT_TUNING_VERSION",
    sm: int = 90,
    only: int = 1,
    digests: Sequence[tuple[str, Sequence[str]]] = (),
) -> Path:
    """`folder`/candidates.so with a problem for each of `trials`: of each trial, the one that it varies or -1.

    `digests` are of each problem and its candidates; "p0" and "c0.0" and so on, unless they are given.
    """
    parts = ['#include "bolt_tuning/candidates.h"', "static const bolt_tuning_trial reference = {};"]
    for problem, of in enumerate(trials):
        digest, names = digests[problem] if digests else (f"p{problem}", [f"c{problem}.{i}" for i, _ in enumerate(of)])
        rows = "".join(f'{{"{names[i]}", "kernel {i}", {v}, 1e-5, nullptr}},' for i, v in enumerate(of))
        parts.append(f"static const bolt_tuning_trial trials_{problem}[] = {{{rows} {{}}}};")
        parts.append(
            f'static const bolt_tuning_problem problem_{problem} = {{"{digest}", "conv {problem}", "batch 1: /conv",'
            f" 0, nullptr, 0, nullptr, 1.0, &reference, nullptr, {len(of)}, trials_{problem}}};"
        )
    table = "".join(f"&problem_{problem}, " for problem in range(len(trials)))
    parts.append(f"static const bolt_tuning_problem* const problems[] = {{{table} nullptr}};")
    parts.append(
        f'static const bolt_tuning_set all = {{{version}, sizeof(bolt_tuning_set), "bundle", "h200", {sm}, {only}, 1,'
        f" {len(trials)}, problems, nullptr, nullptr, nullptr}};\n"
        'extern "C" const bolt_tuning_set* bolt_tuning_candidates(void) { return &all; }'
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.cpp").write_text("\n".join(parts))
    flags = ("-std=c++17", "-shared", "-fPIC", f"-I{glue.include_dir()}")
    _run(["g++", *flags, folder / "table.cpp", "-o", folder / "candidates.so"])
    return folder / "candidates.so"


def _run(argv: Sequence[object]) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


Act = float | str


@dataclass
class Measurement:
    """A supervisor with fake workers in `folder`. `acts`: what happens at "prepare" and trial of each problem,
    `engines` at "prepare" and each place and trial of each engine."""

    folder: Path
    trials: Sequence[Sequence[int]]
    acts: dict[str, dict[str, Act]] = field(default_factory=dict)
    engines: dict[str, dict[str, Act]] = field(default_factory=dict)
    gpus: int = 1
    capability: int = 90
    device_error: str = ""
    digests: Sequence[tuple[str, Sequence[str]]] = ()

    def __post_init__(self) -> None:
        candidates(self.folder, self.trials, digests=self.digests)
        self.uuids = [f"GPU-{uuid.uuid4()}" for _ in range(self.gpus)]
        worker = self.folder / "worker.py"
        worker.write_text((DATA / "worker.py").read_text().replace("PYTHON", sys.executable, 1))
        worker.chmod(0o755)
        self.said: list[str] = []
        self.write_acts()

    def write_acts(self) -> None:
        devices = [[index, name, self.capability] for index, name in enumerate(self.uuids)]
        acts = {"devices": devices, "device_error": self.device_error, "acts": self.acts, "engines": self.engines}
        (self.folder / "acts.json").write_text(json.dumps(acts))

    def argv(self, *options: str) -> list[str]:
        return [
            str(supervisor()), "--worker-program", str(self.folder / "worker.py"),
            "--candidates", str(self.folder / "candidates.so"), "--results", str(self.folder / "results.jsonl"),
            *options,
        ]  # fmt: skip

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(*options), capture_output=True, text=True, check=False, timeout=60)

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.argv(*options), stderr=subprocess.PIPE, text=True)

    @property
    def results(self) -> Results:
        return read_results(self.folder / "results.jsonl")

    def row(self, candidate: str) -> Row:
        (row,) = [row for row in self.results.rows if row.candidate == candidate]
        return row

    @property
    def log(self) -> list[str]:
        """What the workers noted, in time's order."""
        path = self.folder / "log.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def starts(self) -> list[str]:
        return [line for line in self.log if line.startswith("start")]

    @property
    def sleepers(self) -> list[int]:
        """Processes that hung: workers and what they had started."""
        path = self.folder / "sleepers.txt"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def remove_locks(self) -> None:
        for name in self.uuids:
            lock_path(name).unlink(missing_ok=True)


def lock_path(name: str) -> Path:
    """The lock file of a GPU."""
    return Path(f"/tmp/bolt-build-gpu-{name}.lock")


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def alive(process: int) -> bool:
    """True for a process that runs; one that waits for its parent to notice its end does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX" and os.path.exists(f"/proc/{process}")
