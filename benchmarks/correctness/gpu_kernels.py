"""Every kernel of `pytest -m gpu` on a GPU, some in a process: one that crashes takes no other's outcome along.

    python benchmarks/correctness/gpu_kernels.py FOLDER compile     # needs nvcc, no GPU
    python benchmarks/correctness/gpu_kernels.py FOLDER run         # on the GPU: writes FOLDER/kernels.json
    python benchmarks/correctness/gpu_kernels.py FOLDER close       # anywhere: writes results/gpu_kernels.json

The kernels are the trials of `tests/kernels/gpu_layers.py` that are not large, each compared with NumPy as
`tests/gpu/test_gpu_kernels.py` compares it: the error is the largest difference in parts of what is allowed. A process
runs 48 of them; behind one that crashes another goes on. `close` counts kernels by family and by the type of what they
store, so it needs the checkout whose kernels ran. `--only` takes some kernels, in each stage. `--head FILE` is for a
FOLDER/kernels.json that does not say where it was measured: a row of `peer_rows.py`, or steps of `untuned_networks.py`,
from that machine do.

    python benchmarks/correctness/gpu_kernels.py FOLDER gather --head FILE --out FILE

gathers what `tests/kernels/gpu_trials.py run` wrote into FOLDER, a file for each library of kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from benchmarks.kernels import kernel_trials
from benchmarks.peers.against_peers import load

sys.path[:0] = map(str, TESTS)

from gpu_harness import Library, Trial
from gpu_layers import trials

CHUNK = 48
"""Kernels of a process."""
WORST = 40
"""Right ones whose errors stand in FOLDER/kernels.json."""
SECONDS = 300
"""What a process may take."""


def small(only: str = "") -> list[Trial]:
    """The trials, as `tests/gpu/test_gpu_kernels.py` numbers them; those in whose label the pattern is found."""
    return [trial for trial in trials() if not trial.large and re.search(only, trial.label)]


def compiled(folder: Path, only: str) -> int:
    """How many kernels lie compiled in the folder. Raises SystemExit where they are not those of this checkout."""
    kept = folder / "trials.pkl"
    if not (folder / "kernels.so").is_file() or pickle.loads(kept.read_bytes()) != (kernels := small(only)):
        sys.exit(f"run: the kernels of this checkout are not compiled in {folder}: compile them first")
    return len(kernels)


def outcomes_file(folder: Path, begin: int) -> Path:
    """Where a process that began with kernel `begin` writes an outcome a line."""
    return folder / f"kernels_{begin}.jsonl"


def run_here(folder: Path, begin: int, end: int) -> int:
    """Runs kernels in this process, and writes each outcome as it is known."""
    library = Library(folder)
    with outcomes_file(folder, begin).open("w") as out:
        for index in range(begin, min(end, len(library.trials))):
            found = library.run(index)
            layer = library.trials[index].layer.label
            out.write(json.dumps([index, found.label, str(found.error), found.message, layer]) + "\n")
            out.flush()
    return 0


def run_apart(arguments: argparse.Namespace, begin: int, end: int) -> tuple[int, str]:
    """Runs kernels in a process of their own: its exit status, and what it said last."""
    command = [sys.executable, __file__, str(arguments.folder), "run", "--chunk", str(begin), str(end)]
    outcomes_file(arguments.folder, begin).unlink(missing_ok=True)
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return -1, f"took more than {SECONDS} s"
    return done.returncode, done.stderr[-300:]


def chunk(
    folder: Path, begin: int, end: int, run: Callable[[int, int], tuple[int, str]]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Outcomes of the kernels from `begin` to before `end`, and those that crashed: number, exit status, what was said
    last. `run` runs some in a process; behind a kernel that crashed another goes on."""
    outcomes: list[list[Any]] = []
    crashed: list[list[Any]] = []
    while begin < end:
        status, said = run(begin, end)
        path = outcomes_file(folder, begin)
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        outcomes += found
        begin = begin + len(found) + 1 if status else end
        if status:
            crashed.append([begin - 1, status, said])
    return outcomes, crashed


def run(arguments: argparse.Namespace) -> int:
    """Every kernel; 1 where one was wrong or crashed."""
    if arguments.chunk is not None:
        return run_here(arguments.folder, *arguments.chunk)
    many = compiled(arguments.folder, arguments.only)

    def one(begin: int) -> tuple[list[list[Any]], list[list[Any]]]:
        return chunk(arguments.folder, begin, min(begin + CHUNK, many), lambda *of: run_apart(arguments, *of))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        parts = list(pool.map(one, range(0, many, CHUNK)))
    head = record.environment("numpy") | {"gpu": record.gpu_name()}
    found = head | judged(many, [line for ran, _ in parts for line in ran], [line for _, bad in parts for line in bad])
    record.save(arguments.folder / "kernels.json", found)
    print(f"{found['ran']} of {many} kernels ran, {len(found['wrong'])} wrong, {len(found['crashed'])} crashed")
    return int(bool(found["wrong"] or found["crashed"]))


def judged(many: int, outcomes: Sequence[Sequence[Any]], crashed: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What FOLDER/kernels.json says of outcomes: wrong ones, and the right ones that are furthest off."""
    wrong = [line for line in outcomes if line[3] or not float(line[2]) <= 1.0]
    right = sorted((line for line in outcomes if line not in wrong), key=lambda line: -float(line[2]))
    return {"of": many, "ran": len(outcomes), "crashed": list(crashed), "wrong": wrong, "worst": right[:WORST]}


def counted(kernels: Sequence[Trial]) -> dict[str, dict[str, int]]:
    """How many kernels each family has, by the type of what they store."""
    found: dict[str, Counter[str]] = {}
    for trial in kernels:
        kind = trial.step.problem.outputs[0].format.dtype.name.lower()
        found.setdefault(trial.candidate.family, Counter())[kind] += 1
    return {family: dict(sorted(kinds.items())) for family, kinds in sorted(found.items())}


def closed(found: dict[str, Any], kernels: Sequence[Trial]) -> dict[str, Any]:
    """What the result says beside its head. Raises ValueError where the kernels that ran are not these."""
    labels = [trial.label for trial in kernels]
    named = [*found["wrong"], *found["worst"]]
    if found["of"] != len(labels) or any(labels[line[0]] != line[1] for line in named):
        raise ValueError(f"these are not the {found['of']} kernels that ran, but {len(labels)} of another checkout")
    short = [{"kernel": label, "error": round(float(error), 3)} for _, label, error, *_ in found["worst"][:5]]
    return {
        "kernels": found["of"], "ran": found["ran"],
        "wrong": [{"kernel": label, "error": error, "message": said} for _, label, error, said, _ in found["wrong"]],
        "crashed": [{"kernel": labels[index], "status": status} for index, status, _ in found["crashed"]],
        "worst": short, "families": counted(kernels),
    }  # fmt: skip


def gathered(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What results of `gpu_trials.py run` say together. One whose process crashed has no file."""
    trials = [each for result in results for each in result["trials"]]
    short = [{"kernel": each["label"], "error": each["error"], "message": each["message"]} for each in trials]
    short.sort(key=lambda each: -float(each["error"]))
    wrong = {each["label"] for each in trials if not each["right"]}
    return {
        "kernels": len(trials), "ran": len(trials), "wrong": [each for each in short if each["kernel"] in wrong],
        "worst": [{"kernel": each["kernel"], "error": round(float(each["error"]), 3)} for each in short[:5]],
    }  # fmt: skip


def gather(arguments: argparse.Namespace) -> int:
    results = [found for path in sorted(arguments.folder.glob("*.json")) if (found := load(path)) is not None]
    command = {
        "command": "python benchmarks/correctness/gpu_kernels.py FOLDER gather (of `tests/kernels/gpu_trials.py run`)"
    }
    print(record.write("gpu_kernels", head_of(arguments) | command | gathered(results), arguments.out))
    return 0


def head_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The machine of the row that `--head` names."""
    row = load(arguments.head) if arguments.head is not None else None
    if row is None:
        sys.exit(f"{arguments.stage}: the results do not say where they were measured, and --head names no row's file")
    gpu = row["gpu"] if "gpu" in row else row["bench"]["device"]
    return {key: row["environment"][key] for key in ("device", "date", "python")} | {"gpu": gpu}


def close(arguments: argparse.Namespace) -> int:
    """Writes the result; its head is that of FOLDER/kernels.json, or of `--head`."""
    found = load(arguments.folder / "kernels.json")
    if found is None:
        sys.exit("close: nothing ran in this folder")
    head = {key: found[key] for key in ("device", "date", "python", "versions", "gpu") if key in found}
    if "gpu" not in head:
        head = head_of(arguments)
    chosen = f" --only '{arguments.only}'" if arguments.only else ""
    command = {"command": f"python benchmarks/correctness/gpu_kernels.py FOLDER compile (then run, close){chosen}"}
    print(record.write("gpu_kernels", head | command | closed(found, small(arguments.only)), arguments.out))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("compile", "run", "close", "gather"))
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="kernels in whose label it is found, in each stage"
    )
    parser.add_argument("--jobs", type=int, default=min(6, len(os.sched_getaffinity(0))), help="run: processes at once")
    parser.add_argument(
        "--chunk", type=int, nargs=2, metavar=("BEGIN", "END"), help="run: these alone, in this process"
    )
    parser.add_argument("--head", type=Path, metavar="FILE", help="close: a row's file of the machine that ran them")
    parser.add_argument("--out", type=Path, help="write here instead of results/gpu_kernels.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.stage == "compile":
        kernel_trials.prepare(arguments.folder, small(arguments.only))
        return 0
    return {"run": run, "close": close, "gather": gather}[arguments.stage](arguments)


if __name__ == "__main__":
    sys.exit(main())
