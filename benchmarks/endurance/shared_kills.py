"""Kills the builder, a worker, the scheduler or the store at random moments of builds, and builds again.

    python benchmarks/endurance/shared_kills.py FOLDER --kills 200  # three sources and a library
    python benchmarks/endurance/shared_kills.py FOLDER --kills 20 --recipe recipes/resnet50.yaml
    python benchmarks/endurance/shared_kills.py FOLDER close  # writes results/shared_kills.json

Several may run at once, in folders of FOLDER with a --seed each; `close` takes all of them.

Each build compiles through two workers of Dask, with a team's store over HTTP. Of a recipe it is the target `host`, at
batch 1. A build whose worker, scheduler or store is killed must end well by itself. Behind each kill a build follows:
its files must be those of a build without any of this, byte for byte, and no task that had finished may run again.

FOLDER keeps what came of each kill, so that the script goes on where it was ended, and what a kill leaves where
something was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, TESTS, record
from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.running.session import SessionOptions, SessionPart, run_session
from bolt_build.digest import digest_file, encode
from bolt_build.schema.shared_place import SharedPlace

sys.path[:0] = map(str, TESTS)

from dask_graphs import DaskProcesses, Sources, answers
from store_servers import http_store

VICTIMS = ("builder", "worker", "scheduler", "store")
PATIENCE_SECONDS = 300
_WAIT = "sleep 0.3"


def build(root: Path, scheduler: str, store: str) -> int:
    """One build, in this process; a line of JSON an event."""

    def show(event: TaskEvent) -> None:
        print(json.dumps({"event": "task", **encode(event)}), flush=True)

    shared = SharedPlace(store, write=True, timeout=5.0)
    options = SessionOptions(3, True, str(root / "cache"), 1 << 30, shared=shared, scheduler=scheduler)
    with directory_claim(root / "toy", wait=True, say=lambda text: None) as claim:
        result = run_session([SessionPart(root / "toy", ("host",), claim)], options, show)
    return 1 if result.failed or result.trouble or result.interrupted else 0


def serve(port: int) -> None:
    with http_store(port):
        time.sleep(1e6)


@dataclass(frozen=True)
class Tiny:
    """Three sources, each compiled after a short sleep, and a library."""

    name: str = "tiny"

    def prepare(self, root: Path) -> None:
        Sources(root, wait=_WAIT)

    def command(self, root: Path, scheduler: str, store: str) -> list[str]:
        return [sys.executable, __file__, str(root), "--build", scheduler, store]

    def alone(self, root: Path) -> dict[str, str]:
        """Digests of what a build makes without workers and store."""
        sources = Sources(root, wait=_WAIT)
        if sources.build(None)[0].failed:
            raise RuntimeError("a build that nobody disturbs fails")
        return sources.digests

    def digests(self, root: Path) -> dict[str, str]:
        return {path.name: digest_file(path) for path in sorted((root / "toy" / "host").glob("*.*o"))}


@dataclass(frozen=True)
class Model:
    """A recipe's engine for the CPU, verified."""

    recipe: Path

    @property
    def name(self) -> str:
        return self.recipe.stem

    def prepare(self, root: Path) -> None:
        root.mkdir(parents=True)

    def _words(self, root: Path) -> list[str]:
        return [
            sys.executable, "-m", "bolt_build", "build", str(self.recipe), "--target", "host",
            "--set", "model.batch=[1]", "--output", str(root / "generated"), "--cache", str(root / "cache"),
            "--format", "json",
        ]  # fmt: skip

    def command(self, root: Path, scheduler: str, store: str) -> list[str]:
        away = ["--executor", "dask", "--scheduler", scheduler, "-j", "2"]
        return [*self._words(root), *away, "--shared-cache", store, "--shared-cache-write"]

    def alone(self, root: Path) -> dict[str, str]:
        """Digests of what a build makes without workers and store."""
        self.prepare(root)
        subprocess.run(self._words(root), check=True, stdout=subprocess.DEVNULL)
        return self.digests(root)

    def digests(self, root: Path) -> dict[str, str]:
        target = root / "generated" / self.recipe.stem / "host"
        made = [*target.glob("build/objects/**/*"), *target.glob("*")]
        # Verification states how long it took, and plans name folders.
        files = [path for path in made if path.is_file() and path.name not in ("verify.json", "plan.json")]
        return {str(path.relative_to(target)): digest_file(path) for path in sorted(files)}


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
            self.store = subprocess.Popen([sys.executable, __file__, ".", "--serve", str(self.store_port)])
        for port in (self.dask.port, self.store_port):
            answers(port)

    def kill(self, victim: str) -> None:
        if victim == "store":
            assert self.store is not None
            self.store.kill()
            self.store.wait()
        else:
            self.dask.kill("one" if victim == "worker" else victim)

    def store_of(self, number: int) -> str:
        return f"http://127.0.0.1:{self.store_port}/{number}"

    def forget(self) -> None:
        """A store keeps what it has in memory: the next kill gets an empty one."""
        if self.store is not None and self.store.poll() is None:
            self.kill("store")

    def stop(self) -> None:
        self.dask.stop()
        if self.store is not None:
            self.store.kill()
            self.store.wait()


def _tasks(lines: str, *kinds: EventKind) -> set[str]:
    wanted = {each.value for each in kinds}
    # A killed builder's last line may not be whole.
    found = [json.loads(line) for line in lines.splitlines() if line.startswith("{") and line.endswith("}")]
    return {each["task"] for each in found if each["event"] == "task" and each["kind"] in wanted}


def one_kill(
    fleet: Fleet, subject: Tiny | Model, folder: Path, number: int, seed: int, usual: float, reference: dict[str, str]
) -> dict[str, Any]:
    """Build, kill at a random moment, build again; what came of it."""
    fleet.ensure()
    rng = random.Random(f"{seed} {number}")
    victim, at = rng.choice(VICTIMS), rng.uniform(0, usual)
    root = folder / str(number)
    shutil.rmtree(root, ignore_errors=True)
    subject.prepare(root)
    command = subject.command(root, fleet.dask.address, fleet.store_of(number))
    began = time.monotonic()
    events = folder / f"{number}.events"
    with events.open("wb") as log:
        first = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, env=_environment())
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
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=_environment()
    )
    faults = []
    if victim != "builder" and first.returncode != 0:
        faults.append(f"the build failed: {said.decode()[-500:]} {events.read_text()[-500:]}")
    if again.returncode != 0:
        faults.append(f"the build behind it failed: {again.stderr[-500:]} {again.stdout[-500:]}")
    if (made := subject.digests(root)) != reference:
        others = sorted(name for name in {*made, *reference} if made.get(name) != reference.get(name))
        faults.append(f"its files are others: {', '.join(others[:5])}")
    if lost := done & _tasks(again.stdout, EventKind.STARTED, EventKind.FINISHED):
        faults.append(f"finished tasks ran again: {', '.join(sorted(lost))}")
    if not faults:
        shutil.rmtree(root)
        events.unlink()
    fleet.forget()
    return {"number": number, "victim": victim, "at": round(at, 3), "hit": hit, "done": len(done),
            "seconds": round(seconds, 2), "faults": faults}  # fmt: skip


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def run(subject: Tiny | Model, folder: Path, kills: int, seed: int) -> int:
    """The kills that are not done yet. Ends with 1 where something was wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "kills.jsonl"
    known = {each["number"] for each in _found(folder)}
    for name in ("reference", "warm"):
        shutil.rmtree(folder / name, ignore_errors=True)
    reference = subject.alone(folder / "reference")
    ports = _free_ports(2)
    (folder / "dask").mkdir(exist_ok=True)
    fleet, wrong = Fleet(DaskProcesses(folder / "dask", ports[0]), ports[1]), 0
    try:
        fleet.ensure()
        subject.prepare(folder / "warm")
        began = time.monotonic()
        warm = subject.command(folder / "warm", fleet.dask.address, fleet.store_of(-1))
        subprocess.run(warm, check=True, stdout=subprocess.DEVNULL, env=_environment())
        usual = time.monotonic() - began
        for name in ("reference", "warm"):
            shutil.rmtree(folder / name)
        for number in (each for each in range(kills) if each not in known):
            found = one_kill(fleet, subject, folder, number, seed, usual, reference)
            wrong += bool(found["faults"])
            with log.open("a") as stream:
                stream.write(json.dumps(found | {"seed": seed}) + "\n")
            print(json.dumps(found), flush=True)
    finally:
        fleet.stop()
    return 1 if wrong else 0


def _found(folder: Path) -> list[dict[str, Any]]:
    log = folder / "kills.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def close(folder: Path, out: Path | None) -> int:
    """Writes the result of all that was done in `folder`."""
    result: dict[str, Any] = {**record.environment("distributed", "obstore", "SCons"), "subjects": {}}
    subjects: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.rglob("kills.jsonl")):
        subjects.setdefault(path.parent.name, []).extend(_found(path.parent))
    for name, found in sorted(subjects.items()):
        wrong = [each for each in found if each["faults"]]
        result["subjects"][name] = {
            "kills": len(found), "during_a_build": sum(each["hit"] for each in found),
            "by_victim": dict(sorted(Counter(each["victim"] for each in found).items())),
            "seeds": sorted({each["seed"] for each in found}), "wrong": wrong,
        }  # fmt: skip
    print(record.write("shared_kills", result, out))
    return 1 if any(each["wrong"] for each in result["subjects"].values()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="?", choices=("kill", "close"), default="kill")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--recipe", type=Path, help="a recipe with a target `host`, instead of three sources")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.build is not None:
        return build(folder, *args.build)
    if args.serve is not None:
        serve(args.serve)
        return 0
    if args.what == "close":
        return close(folder, args.out)
    subject = Tiny() if args.recipe is None else Model(args.recipe.resolve())
    return run(subject, folder / subject.name, args.kills, args.seed)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


if __name__ == "__main__":
    sys.exit(main())
