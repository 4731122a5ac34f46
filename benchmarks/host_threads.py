"""Times a built host engine with its default threads on a quiet machine and beside busy processes, in turns with
onnxruntime and with the same engine whose threads are told how to wait.

"spinning" is how GNU's OpenMP waits by itself (GOMP_SPINCOUNT=300000), "passive" is OMP_WAIT_POLICY=passive; the engine
overrules neither. Each contestant lives in a process of its own that sleeps on a pipe while another one runs.

    bolt-build recipes/resnet50.yaml --target host
    python benchmarks/host_threads.py                     # ResNet-50, batch 1, beside 0 and 1 busy processes
    sudo python benchmarks/host_threads.py --ahead        # on a machine that others use meanwhile

With --ahead quiet rounds run under SCHED_FIFO, and busy ones in a scheduling group that comes before all others, so
that what others run takes little part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import record
from host_resnet50 import engine_worker, onnxruntime_worker, plan_of, read

CONTESTANTS = {
    "engine": {},
    "spinning": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "onnxruntime": {},
}
"""Each with what its process finds in its environment."""


def work(arguments: argparse.Namespace) -> None:
    """Answers each line on stdin with the seconds of `arguments.runs` runs, behind one that does not count."""
    if arguments.worker == "onnxruntime":
        call = onnxruntime_worker(arguments.onnx, arguments.batch, arguments.threads)
    else:
        call = engine_worker(arguments.engine, arguments.batch, arguments.threads)
    call()
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        call()
        times = []
        for _ in range(arguments.runs):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        print(json.dumps(times), flush=True)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that only compute."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextlib.contextmanager
def contestants(arguments: argparse.Namespace, quiet: bool) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """A process for each contestant, ready to run."""
    alone = ["chrt", "--fifo", "10"] if arguments.ahead and quiet else []
    command = [*alone, sys.executable, __file__, *sys.argv[1:], "--worker"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    started = {
        name: subprocess.Popen(
            [*command, name], env={**environment, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name, own in CONTESTANTS.items()
    }
    try:
        for process in started.values():
            read(process)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def contest(arguments: argparse.Namespace, processes: int) -> dict[str, Any]:
    """One row: medians of all runs in milliseconds, beside so many busy processes, and ratios to the engine's."""
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    with contestants(arguments, processes == 0) as started, busy(processes):
        for index in range(arguments.rounds):
            names = list(CONTESTANTS) if index % 2 == 0 else list(CONTESTANTS)[::-1]
            for name in names:
                stdin = started[name].stdin
                assert stdin is not None
                stdin.write("\n")
                stdin.flush()
                times[name] += json.loads(read(started[name]))
    medians = {name: statistics.median(found) * 1e3 for name, found in times.items()}
    return {
        "busy_processes": processes,
        "median_ms": {name: round(found, 2) for name, found in medians.items()},
        "ninth_decile_ms": {
            name: round(statistics.quantiles(found, n=10)[8] * 1e3, 2) for name, found in times.items()
        },
        "over_engine": {name: round(found / medians["engine"], 3) for name, found in medians.items()},
        "load_average": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=Path("generated/resnet50/host"))
    parser.add_argument("--onnx", type=Path, default=Path("generated/resnet50/model.onnx"))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0: each contestant's default")
    parser.add_argument("--busy", default="0,1", help="numbers of busy processes, a row each")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=10, help="timed runs of a contestant in a round")
    parser.add_argument("--ahead", action="store_true", help="before what others run on this machine; needs root")
    parser.add_argument("--worker", choices=tuple(CONTESTANTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    if arguments.ahead:
        if os.getsid(0) != os.getpid():  # the weight is that of a whole session's group
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], start_new_session=True).returncode)
        Path("/proc/self/autogroup").write_text("-20")
    result = {
        **record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"),
        "model": plan_of(arguments.engine)["name"], "batch": arguments.batch, "threads": arguments.threads,
        "rounds": arguments.rounds, "runs": arguments.runs, "rows": [],
    }  # fmt: skip
    for processes in map(int, arguments.busy.split(",")):
        row = contest(arguments, processes)
        result["rows"].append(row)
        print(json.dumps(row), flush=True)
    print(record.write("host_threads", result))


if __name__ == "__main__":
    main()
