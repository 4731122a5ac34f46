"""Times a built host engine with its default threads on a quiet machine and beside busy processes, in turns with
onnxruntime and with the same engine whose threads are told how to wait.

"spinning" is how GNU's OpenMP waits by itself (GOMP_SPINCOUNT=300000), "passive" is OMP_WAIT_POLICY=passive; the engine
overrules neither. Each contestant has a process of its own that sleeps while another one runs.

    bolt-build recipes/resnet50.yaml --target host
    python benchmarks/host/host_threads.py                     # ResNet-50, batch 1, beside 0 and 1 busy processes
    sudo python benchmarks/host/host_threads.py --ahead        # on a machine that others use meanwhile

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
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.host.host_contest import plan_of, setups, times_of, write_inputs
from bolt_build.bench.contestant import Effort
from bolt_build.bench.opponent import Start
from bolt_build.bench.turns import Entry, seated, take_turns

CONTESTANTS = {
    "engine": {},
    "spinning": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "onnxruntime": {},
}
"""Each with what its process finds in its environment."""


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


def contestants(arguments: argparse.Namespace, inputs: Path, quiet: bool) -> dict[str, Entry]:
    """Each with what its process finds in its environment."""
    effort = Effort(arguments.rounds, arguments.runs)
    found = setups(arguments.engine, arguments.onnx, inputs, arguments.batch, arguments.threads, effort)
    alone = ("chrt", "--fifo", "10") if arguments.ahead and quiet else ()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    return {
        name: Entry(found.get(name, found["engine"]), Start(alone, tuple({**environment, **own}.items())))
        for name, own in CONTESTANTS.items()
    }


def contest(arguments: argparse.Namespace, inputs: Path, processes: int) -> dict[str, Any]:
    """One row: medians of all runs in milliseconds, beside so many busy processes, and ratios to the engine's."""
    with seated(contestants(arguments, inputs, processes == 0)) as opponents, busy(processes):
        rounds = take_turns(opponents, arguments.rounds)
    times = {name: times_of(each) for name, each in rounds.items()}
    medians = {name: statistics.median(found) for name, found in times.items()}
    return {
        "busy_processes": processes,
        "median_ms": {name: round(found, 2) for name, found in medians.items()},
        "ninth_decile_ms": {name: round(statistics.quantiles(found, n=10)[8], 2) for name, found in times.items()},
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
    parser.add_argument("--out", type=Path, help="write here instead of benchmarks/results/host_threads.json")
    arguments = parser.parse_args()
    if arguments.ahead:
        if os.getsid(0) != os.getpid():  # the weight is that of a whole session's group
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], start_new_session=True).returncode)
        Path("/proc/self/autogroup").write_text("-20")
    plan = plan_of(arguments.engine)
    result = {
        **record.environment("onnxruntime", "onednn-cpu-gomp", "numpy"),
        "model": plan.name, "batch": arguments.batch, "threads": arguments.threads,
        "rounds": arguments.rounds, "runs": arguments.runs, "rows": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        inputs = write_inputs(Path(folder) / "inputs.npz", plan, arguments.batch)
        for processes in map(int, arguments.busy.split(",")):
            row = contest(arguments, inputs, processes)
            result["rows"].append(row)
            print(json.dumps(row), flush=True)
    print(record.write("host_threads", result, arguments.out))


if __name__ == "__main__":
    main()
