"""Single kernels on a GPU, right or not and how fast: what the benchmarks of kinds of kernels share.

A benchmark plans kernels, each of a row of its result and of a way to compute that row. `library` compiles them where
that is still to be done, `measured_rows` runs them, and `finish` writes the result.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import TESTS, record
from bolt_build.toolchain import probe

sys.path[:0] = map(str, TESTS)

import gpu_harness

ALIKE = 2e-3
"""Most that results of two kernels may differ by, in the norm of one."""
Planned = tuple[str, str, gpu_harness.Trial]
"""A row's name, the way, and the kernel."""
Rows = dict[str, dict[str, Any]]
"""By name: of each way its kernels, as `measured` gives them, and what a benchmark adds."""


def parser(description: str | None, count: int, counted: str) -> argparse.ArgumentParser:
    """FOLDER, `--prepare`, `--count` of what is `counted`, and `--out`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=Path)
    made.add_argument("--prepare", action="store_true", help="compile, and run nothing")
    made.add_argument("--count", type=int, default=count, help=counted)
    made.add_argument("--out", type=Path)
    return made


def library(
    arguments: argparse.Namespace, trials: Sequence[gpu_harness.Trial], **options: int
) -> gpu_harness.Library | None:
    """The kernels in FOLDER, compiled where they are not yet; None with `--prepare`. `options` are those of
    `gpu_harness.write`. Raises SystemExit where no kernel is asked for, a compiler is missing, or FOLDER has other
    kernels."""
    if not trials:
        raise SystemExit("no kernel has a name that was asked for")
    if arguments.prepare or not (arguments.folder / "kernels.so").exists():
        prepare(arguments.folder, trials, **options)
    if arguments.prepare:
        return None
    found = gpu_harness.Library(arguments.folder)
    if found.trials != list(trials):
        raise SystemExit(f"{arguments.folder} was prepared for other kernels: delete it")
    return found


def prepare(folder: Path, trials: Sequence[gpu_harness.Trial], **options: int) -> None:
    """Writes and compiles what is not there yet; `options` are those of `gpu_harness.write`. Raises SystemExit where a
    compiler is missing."""
    chain = probe(gpu_harness.TARGET.tools)
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        raise SystemExit(" ".join(diagnostic.message for diagnostic in chain.diagnostics()))
    gpu_harness.write(trials, folder, **options)
    gpu_harness.compile_all(folder, Path(nvcc), Path(cutlass).parent)


def measured(library: gpu_harness.Library, index: int, trial: gpu_harness.Trial) -> dict[str, Any]:
    """One kernel: its time in us, and the largest difference from NumPy in parts of the tolerance, of large trials from
    another kernel's result."""
    outcome = library.run(index)
    right = outcome.message == "" and outcome.error <= (ALIKE if trial.large else 1.0)
    return {
        "candidate": str(trial.candidate), "us": outcome.microseconds if right else None, "error": outcome.error,
        "message": outcome.message,
    }  # fmt: skip


def measured_rows(
    library: gpu_harness.Library,
    planned: Sequence[Planned],
    ways: Sequence[str],
    predicted: Callable[[gpu_harness.Trial], float] | None = None,
    seconds: float = math.inf,
) -> Rows:
    """Runs the kernels in the library's order, and prints a line of each. Rows have a list of each of the `ways`. None
    is begun after so many `seconds`. `predicted` gives us."""
    rows: Rows = {}
    begun = time.monotonic()
    for index, (name, way, trial) in enumerate(planned):
        if time.monotonic() - begun > seconds and name not in rows:
            break
        found = measured(library, index, trial)
        said = f"{name:44} {way:8} {found['us'] or float('nan'):8.2f} us"
        if predicted is not None:
            found["predicted"] = predicted(trial)
            said += f", predicted {found['predicted']:8.2f}"
        rows.setdefault(name, {each: [] for each in ways})[way].append(found)
        print(f"{said}: {trial.candidate} {found['message']}".rstrip(), flush=True)
    return rows


def best(kernels: Sequence[Mapping[str, Any]], field: str = "us") -> float | None:
    """The least time; None where there is none."""
    return min((each[field] for each in kernels if each[field] is not None), default=None)


def wrong(rows: Rows, ways: Sequence[str]) -> int:
    """Kernels that were wrong or failed."""
    return sum(each["us"] is None for row in rows.values() for way in ways for each in row[way])


def beside_one(rows: Rows, ways: Sequence[str]) -> dict[str, Any]:
    """The result of kernels that the first two ways compute apart and the last one in one step: with the fastest of
    each way, both kernels together, and how many times as long they take as the step."""
    for row in rows.values():
        found = {way: best(row[way]) for way in ways}
        first, second, *_, one = found.values()
        both = None if first is None or second is None else first + second
        row["us"] = {**found, "both": both}
        row["gain"] = None if both is None or one is None else both / one
    return {"shapes": rows, "wrong": wrong(rows, ways)}


def compare_with_one(
    name: str,
    arguments: argparse.Namespace,
    planned: Sequence[Planned],
    ways: Sequence[str],
    predicted: Callable[[gpu_harness.Trial], float],
) -> int:
    """Measures and writes what `beside_one` gives; with `--prepare` nothing is run. Returns the exit status."""
    found = library(arguments, [trial for *_, trial in planned])
    if found is None:
        return 0
    return finish(name, arguments, beside_one(measured_rows(found, planned, ways, predicted), ways))


def finish(name: str, arguments: argparse.Namespace, result: Mapping[str, Any]) -> int:
    """Writes the result with its head, in which FOLDER stands for the folder, and returns the exit status: 1 where
    kernels were `wrong`."""
    facts = record.environment("nvidia-cuda-nvcc", "nvidia-cutlass")
    facts["command"] = facts["command"].replace(str(arguments.folder), "FOLDER")
    gpu = record.gpu_name()
    record.write(name, {**facts, **({} if gpu is None else {"gpu": gpu}), **result}, arguments.out)
    print(f"{result['wrong']} kernels were wrong or failed")
    return 1 if result["wrong"] else 0
