"""How tuning scales: ResNet-50 at batch 32 from nothing, with one and two GPUs, and with one and two compile workers.

    python benchmarks/tuning/scaling.py FOLDER measure  # on a machine with two GPUs; again until no stage is left
    python benchmarks/tuning/scaling.py FOLDER measure --gpus 1 # on a machine with one: all but what needs two
    # without one: what compiles through workers
    python benchmarks/tuning/scaling.py FOLDER measure --gpus 0 --threads 1
    python benchmarks/tuning/scaling.py FOLDER close            # anywhere: writes results/scaling.json

The stages, each of which writes FOLDER/stages/NAME.json and is not run again:

- memory: touches memory, where a machine shows less than its compilers may take: some get it when it is used.
- two_gpus: tunes from nothing, all cores compile, both GPUs measure.
- one_gpu: the same with one GPU, without any measurement, and with what was compiled before. From nothing with
  `--gpus 1`.
- one_worker, two_workers: compiles fewer candidates of the same problems from nothing through Dask. A worker stands
  for a machine: it has THREADS cores of its own, and as many compilers at once.

`measure` begins no stage that may not be done within `--limit` seconds. When every compilation and every problem began
and ended is kept, so that `simulated_scaling.py` can play them on more workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Process
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

MODEL, BATCH = "resnet50", 32
FEW = 2
"""Candidates a problem of the stages that compile through workers."""
_PROBLEM = re.compile(r"GPU (\d+)  \[\d+/\d+\] ")
_STARTS = (("measuring the whole ", "engine"), ("measuring ", "measure"))
_CORE_GIB = 3.5
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """Where a tuning runs: a folder of its own, its cache, and what it adds to the environment."""

    folder: Path
    cache: Path
    environment: tuple[tuple[str, str], ...] = ()

    def recipe(self, target: str, candidates: int | None) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        few = "" if candidates is None else f", candidates: {candidates}"
        (self.folder / "cold.yaml").write_text(
            f"bolt: 1\nname: cold\nmodel: {{zoo: {MODEL}, batch: {BATCH}}}\n"
            f"targets: {{{target}: {{precision: fp16}}}}\ntuning: {{lock: cold.lock{few}}}\n"
        )
        return "cold.yaml"


def tune(place: Place, recipe: str, *words: str) -> dict[str, Any]:
    """A tuning's own result, with when each task and each problem began and ended, in seconds of its process.

    Raises RuntimeError where it fails.
    """
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bolt_build", "tune", recipe, "--cache", str(place.cache), "--format", "json"]
    environment = os.environ | {"PYTHONPATH": paths} | dict(place.environment)
    began = time.monotonic()
    tasks: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    starts: dict[str, float] = {}
    last = ""
    with subprocess.Popen(
        [*command, *words], cwd=place.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            now, last = round(time.monotonic() - began, 3), line
            event = json.loads(line)
            if event["event"] == "task" and event["kind"] in ("finished", "failed"):
                tasks.append(
                    {"task": event["task"], "ended": now, "seconds": event["seconds"], "cached": event["cached"]}
                )
            elif event["event"] == "note":
                stage = next((name for text, name in _STARTS if event["text"].startswith(text)), None)
                if stage is not None:
                    starts[stage] = now
                if found := _PROBLEM.match(event["text"]):
                    problems.append({"gpu": int(found[1]), "ended": now})
    wall = time.monotonic() - began
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join([*command, *words])} ended with {child.returncode}: {last[-3000:]}")
    result = json.loads(last)
    return {
        "wall_seconds": round(wall, 2), "seconds": result["seconds"], "compile": _numbers(result["compile"]),
        "problems": len(result["problems"]), "measured_now": result["measured_now"], "statuses": result["statuses"],
        "engines": [{key: each[key] for key in ("batch", "before", "after", "gain")} for each in result["engines"]],
        "winners": [
            {"what": each["what"], "winner": each["winner"] and each["winner"]["candidate"], "median": each["median"],
             "times": {trial["digest"]: trial["median"] for trial in each["trials"]},
             "digest": each["winner"] and each["winner"]["digest"]}
            for each in result["problems"]
        ],
        "tasks": tasks, "lanes": _lanes(problems, starts.get("measure", 0.0)), "starts": starts,
    }  # fmt: skip


def _numbers(compiled: dict[str, Any] | None) -> dict[str, Any] | None:
    return compiled and {key: value for key, value in compiled.items() if isinstance(value, int)}


def _lanes(problems: Sequence[dict[str, Any]], began: float) -> list[list[list[float]]]:
    """Of each GPU its problems, as they came, each with begin and end: one begins where the one before it ended."""
    lanes: dict[int, list[list[float]]] = {}
    for each in problems:
        lane = lanes.setdefault(each["gpu"], [])
        lane.append([lane[-1][1] if lane else began, each["ended"]])
    return [lanes[gpu] for gpu in sorted(lanes)]


def gpus() -> list[str]:
    """UUIDs of this machine's GPUs."""
    asked = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


def _visible(count: int) -> tuple[tuple[str, str], ...]:
    found = gpus()
    if len(found) < count:
        raise RuntimeError(f"this machine has {len(found)} GPUs, and {count} are to measure")
    return (("CUDA_VISIBLE_DEVICES", ",".join(found[:count])),)


def touch_memory(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    before, cores = _memory_gib(), len(os.sched_getaffinity(0))
    wanted = min(cores * _CORE_GIB, arguments.touch)
    if before["MemAvailable"] < wanted:
        children = [Process(target=_touch, args=(wanted / 8,), daemon=True) for _ in range(8)]
        for child in children:
            child.start()
        end = time.monotonic() + 45
        for child in children:
            child.join(max(0.0, end - time.monotonic()))
            child.terminate()
    return {"cores": cores, "before": before, "after": _memory_gib()}


def _touch(gibibytes: float) -> None:
    held = bytearray(int(gibibytes * (1 << 30)))
    held[:: 1 << 12] = b"\1" * len(held[:: 1 << 12])


def _memory_gib() -> dict[str, float]:
    lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    return {
        name[:-1]: round(int(value) / (1 << 20), 1)
        for name, value, *_ in lines
        if name in ("MemTotal:", "MemAvailable:")
    }


def two_gpus(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    place = Place(folder / "two_gpus", folder / "cache", _visible(2))
    for path in (place.folder, place.cache):
        shutil.rmtree(path, ignore_errors=True)
    return tune(place, place.recipe(arguments.target, None))


def one_gpu(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """With what `two_gpus` compiled, where that ran; from nothing where it did not."""
    place = Place(folder / "one_gpu", folder / "cache", _visible(1))
    for path in (place.folder, place.cache / "tuning" if arguments.gpus > 1 else place.cache):
        shutil.rmtree(path, ignore_errors=True)
    return tune(place, place.recipe(arguments.target, None))


def _through_workers(folder: Path, count: int, arguments: argparse.Namespace) -> dict[str, Any]:
    name = f"{count}_workers"
    place = Place(folder / name, folder / f"cache_{name}")
    for path in (place.folder, place.cache):
        shutil.rmtree(path, ignore_errors=True)
    recipe = place.recipe(arguments.target, arguments.candidates)
    with workers(place.folder, count, arguments.threads) as address:
        found = tune(place, recipe, "--executor", "dask", "--scheduler", address, "--export", "bundle.tar")
    return found | {"workers": count, "threads": arguments.threads, "candidates": arguments.candidates}


def one_worker(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    return _through_workers(folder, 1, arguments)


def two_workers(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    return _through_workers(folder, 2, arguments)


@contextlib.contextmanager
def workers(folder: Path, count: int, threads: int) -> Iterator[str]:
    """A scheduler and workers, each on `threads` cores of its own; its address."""
    cores = sorted(os.sched_getaffinity(0))
    if count * threads > len(cores):
        raise RuntimeError(f"{count} workers of {threads} cores do not fit into {len(cores)} cores")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": paths}
    log = (folder / "dask.log").open("ab")
    children: list[subprocess.Popen[bytes]] = []

    def start(program: str, *words: str, cores: Sequence[int] = ()) -> None:
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        command = [*pinned, sys.executable, "-m", f"distributed.cli.dask_{program}", *words, "--host", "127.0.0.1"]
        children.append(subprocess.Popen([*command, "--no-dashboard"], stdout=log, stderr=log, env=environment))

    try:
        start("scheduler", "--port", str(port))
        _answers(port)
        for number in range(count):
            of_worker = cores[number * threads : (number + 1) * threads]
            start("worker", address, "--nthreads", str(threads), "--no-nanny", "--memory-limit", "0",
                  "--local-directory", str(folder), cores=of_worker)  # fmt: skip
        _registered(address, count)
        yield address
    finally:
        for child in children:
            child.terminate()
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()
        log.close()


def _answers(port: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"no scheduler answers at {port}")


def _registered(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=_PATIENCE_SECONDS)


@dataclass(frozen=True)
class Stage:
    """`seconds`: what it may take."""

    name: str
    run: Callable[[Path, argparse.Namespace], dict[str, Any]]
    seconds: float


STAGES = (
    Stage("memory", touch_memory, 50), Stage("two_gpus", two_gpus, 150), Stage("one_gpu", one_gpu, 90),
    Stage("one_worker", one_worker, 80), Stage("two_workers", two_workers, 60),
)  # fmt: skip


def stages_of(gpus: int) -> list[Stage]:
    needs = {two_gpus: 2, one_gpu: 1}
    return [stage for stage in STAGES if needs.get(stage.run, 0) <= gpus]


def measure(folder: Path, arguments: argparse.Namespace) -> int:
    began, left = time.monotonic(), 0
    (folder / "stages").mkdir(parents=True, exist_ok=True)
    for stage in stages_of(arguments.gpus):
        done = folder / "stages" / f"{stage.name}.json"
        if done.exists():
            continue
        if time.monotonic() - began + stage.seconds > arguments.limit:
            left += 1
            print(f"{stage.name} is left: it may take {stage.seconds:.0f} s", flush=True)
            continue
        stage_began = time.monotonic()
        found = stage.run(folder, arguments)
        took = round(time.monotonic() - stage_began, 2)
        record.save(done, {"environment": record.environment("nvidia-cutlass", "scons", "distributed", "torch"),
                           "took": took, "found": found})  # fmt: skip
        print(f"{stage.name}: {took} s {json.dumps(found.get('seconds', found))}", flush=True)
    return 1 if left else 0


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Winners of two tunings of the same problems: the same, or by how much the second's is slower in the first's
    times (the largest such part)."""
    same, worst = 0, 0.0
    for one, other in zip(first["winners"], second["winners"], strict=True):
        if one["digest"] == other["digest"]:
            same += 1
        elif (there := one["times"].get(other["digest"])) is not None:
            worst = max(worst, there / one["median"] - 1.0)
    return {"problems": len(first["winners"]), "same": same, "largest_loss": round(worst, 4)}


def _compiled(found: dict[str, Any]) -> dict[str, Any]:
    """How much of its workers' time a compilation used; the longest task of all, which no worker makes shorter."""
    ran = [each for each in found["tasks"] if not each["cached"]]
    began = min((each["ended"] - each["seconds"] for each in ran), default=0.0)
    ended = max((each["ended"] for each in ran), default=0.0)
    work, span = sum(each["seconds"] for each in ran), ended - began
    return {
        "tasks": len(ran), "work": round(work, 2), "span": round(span, 2),
        "at_once": round(work / span, 2) if span else None,
        "longest": round(max((each["seconds"] for each in ran), default=0.0), 2),
    }  # fmt: skip


def _measured(found: dict[str, Any]) -> dict[str, Any]:
    """How long each GPU measured, and the largest problem."""
    lanes = found["lanes"]
    return {
        "problems": [len(lane) for lane in lanes],
        "seconds": [round(lane[-1][1] - lane[0][0], 2) for lane in lanes],
        "longest": round(max(ended - began for lane in lanes for began, ended in lane), 2),
    }


def close(folder: Path, arguments: argparse.Namespace) -> int:
    """What was run: a tuning from nothing at least. What else is missing stands in `not_run`, two GPUs say."""
    stages = {}
    for stage in STAGES:
        path = folder / "stages" / f"{stage.name}.json"
        if path.exists():
            stages[stage.name] = json.loads(path.read_text())
    missing = [stage.name for stage in STAGES if stage.name not in stages]
    if needed := [name for name in ("memory", "one_gpu") if name in missing]:
        print(f"stages are missing: {', '.join(needed)}")
        return 1
    found = {name: stage["found"] for name, stage in stages.items()}
    cold = "two_gpus" if "two_gpus" in found else "one_gpu"
    result: dict[str, Any] = {
        **stages[cold]["environment"],
        "command": "python benchmarks/tuning/scaling.py FOLDER measure (then close)",
        "model": MODEL,
        "batch": BATCH,
        "memory": found["memory"],
        "not_run": missing,
        "cold": cold,
    }
    if cold == "two_gpus":
        result["winners_of_both"] = compare(found["one_gpu"], found["two_gpus"])
    for name in ("two_gpus", "one_gpu", "one_worker", "two_workers"):
        if name in missing:
            continue
        kept = {key: value for key, value in found[name].items() if key not in ("winners", "tasks", "lanes")}
        result[name] = kept | {"device": stages[name]["environment"]["device"], "compiling": _compiled(found[name])}
        if found[name]["lanes"]:
            result[name]["measuring"] = _measured(found[name])
    result["recorded"] = {"tasks": found[cold]["tasks"], "lanes": found["one_gpu"]["lanes"]}
    print(record.write("scaling", result, arguments.out))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("measure", "close"))
    parser.add_argument("--limit", type=float, default=1e6, help="seconds of this call")
    parser.add_argument("--gpus", type=int, default=2, choices=(0, 1, 2), help="GPUs of this machine at most")
    parser.add_argument("--threads", type=int, default=16, help="cores of a compile worker")
    parser.add_argument("--candidates", type=int, default=FEW, help="of each problem, where workers compile")
    parser.add_argument("--touch", type=float, default=112.0, help="GiB of memory to touch at most")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/scaling.json")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    return measure(folder, arguments) if arguments.what == "measure" else close(folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
