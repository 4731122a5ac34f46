"""Kills the builder, a worker, the scheduler or the store at random moments of small builds, and builds again.

python benchmarks/shared_kills.py [--kills 200] [--seed 1] [--out FILE]

Each build compiles three sources through two workers of Dask, with a team's store over HTTP, and links. A build whose
worker, scheduler or store is killed must end well by itself. Behind each kill a build follows: its files must be those
of a build without any of this, byte for byte, and no task that had finished may run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import record
from dask_graphs import DaskProcesses, Sources, answers
from store_servers import http_store

from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.session import SessionOptions, SessionPart, run_session
from bolt_build.schema.user_settings import SharedPlace

VICTIMS = ("builder", "worker", "scheduler", "store")
PATIENCE_SECONDS = 300
_WAIT = "sleep 0.3"


def build(root: Path, scheduler: str, store: str) -> int:
    """One build, in this process; a line of JSON an event."""

    def show(event: TaskEvent) -> None:
        print(json.dumps([event.kind.value, event.task, event.cached, event.text]), flush=True)

    shared = SharedPlace(store, write=True, timeout=5.0)
    options = SessionOptions(3, True, str(root / "cache"), 1 << 30, shared=shared, scheduler=scheduler)
    with directory_claim(root / "toy", wait=True, say=lambda text: None) as claim:
        result = run_session([SessionPart(root / "toy", ("host",), claim)], options, show)
    return 1 if result.failed or result.trouble or result.interrupted else 0


def serve(port: int) -> None:
    with http_store(port):
        time.sleep(1e6)


@dataclass
class Fleet:
    """Scheduler, two workers and a store, which come back after a kill."""

    dask: DaskProcesses
    store_port: int
    store: subprocess.Popen[bytes] | None = None
    noted: Counter[str] = field(default_factory=Counter)

    def ensure(self) -> None:
        """Start what is not running."""
        for name in ("scheduler", "one", "two"):
            child = self.dask.running.get(name)
            if child is None or child.poll() is not None:
                self.dask.start(name)
        if self.store is None or self.store.poll() is not None:
            self.store = subprocess.Popen([sys.executable, __file__, "--serve", str(self.store_port)])
        for port in (self.dask.port, self.store_port):
            answers(port)

    def kill(self, victim: str) -> None:
        if victim == "store":
            assert self.store is not None
            self.store.kill()
            self.store.wait()
        else:
            self.dask.kill("one" if victim == "worker" else victim)

    def command(self, root: Path, number: int) -> list[str]:
        url = f"http://127.0.0.1:{self.store_port}/{number}"
        return [sys.executable, __file__, "--build", str(root), self.dask.address, url]

    def stop(self) -> None:
        self.dask.stop()
        if self.store is not None:
            self.store.kill()
            self.store.wait()


def _tasks(lines: str, *kinds: EventKind) -> set[str]:
    found = [json.loads(line) for line in lines.splitlines() if line.endswith("]")]
    return {task for kind, task, _, _ in found if kind in {each.value for each in kinds}}


def one_kill(
    fleet: Fleet, folder: Path, number: int, rng: random.Random, usual: float, reference: dict[str, str]
) -> dict[str, Any]:
    """Build, kill at a random moment, build again; what came of it."""
    fleet.ensure()
    victim, at = rng.choice(VICTIMS), rng.uniform(0, usual)
    sources = Sources(folder / str(number), wait=_WAIT)
    began = time.monotonic()
    events = folder / f"{number}.events"
    with events.open("wb") as log:
        first = subprocess.Popen(fleet.command(sources.root, number), stdout=log, stderr=subprocess.PIPE)
    time.sleep(at)
    hit = first.poll() is None
    if victim == "builder":
        first.kill()
    else:
        fleet.kill(victim)
        # Workers of a scheduler that is gone end a little later than it.
        while first.poll() is None and time.monotonic() - began < PATIENCE_SECONDS:
            fleet.ensure()
            time.sleep(0.2)
    _, said = first.communicate(timeout=PATIENCE_SECONDS)
    seconds = time.monotonic() - began
    done = _tasks(events.read_text(), EventKind.FINISHED)
    fleet.ensure()
    again = subprocess.run(
        fleet.command(sources.root, number), capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )  # fmt: skip
    faults = []
    if victim != "builder" and first.returncode != 0:
        faults.append(f"the build failed: {said.decode()[-500:]} {events.read_text()[-500:]}")
    if again.returncode != 0:
        faults.append(f"the build behind it failed: {again.stderr[-500:]} {again.stdout[-500:]}")
    if sources.digests != reference:
        faults.append("its files are others")
    if lost := done & _tasks(again.stdout, EventKind.STARTED, EventKind.FINISHED):
        faults.append(f"finished tasks ran again: {', '.join(sorted(lost))}")
    shutil.rmtree(sources.root)
    return {"victim": victim, "at": round(at, 3), "hit": hit, "seconds": seconds, "faults": faults}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--build", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build is not None:
        return build(Path(args.build[0]), args.build[1], args.build[2])
    if args.serve is not None:
        serve(args.serve)
        return 0
    rng, found = random.Random(args.seed), []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        alone = Sources(folder / "reference", wait=_WAIT)
        assert alone.build(None)[0].failed == ()
        ports = _free_ports(2)
        fleet = Fleet(DaskProcesses(folder, ports[0]), ports[1])
        try:
            fleet.ensure()
            warm, began = Sources(folder / "warm", wait=_WAIT), time.monotonic()
            subprocess.run(fleet.command(warm.root, -1), check=True, stdout=subprocess.DEVNULL)
            usual = time.monotonic() - began
            for number in range(args.kills):
                found.append(one_kill(fleet, folder, number, rng, usual, alone.digests))
                print(json.dumps(found[-1]), flush=True)
        finally:
            fleet.stop()
    wrong = [each for each in found if each["faults"]]
    result = {
        **record.environment("distributed", "obstore", "SCons"),
        "kills": len(found), "during_a_build": sum(each["hit"] for each in found),
        "by_victim": dict(Counter(each["victim"] for each in found)), "seed": args.seed,
        "wrong": wrong,
    }  # fmt: skip
    record.write("shared_kills", result, args.out)
    return 1 if wrong else 0


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


if __name__ == "__main__":
    sys.exit(main())
