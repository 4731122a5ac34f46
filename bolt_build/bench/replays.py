"""Replays built engines in turns, all loaded in one process: what they take relative to each other, runs of one engine
differing less between turns than between processes.

    python -m bolt_build.bench.replays SPEC.json OUT.json      # what `measured_in_turns` starts

In a turn each engine first runs without the clock, so that its own weights are what caches hold, then with it. Each
turn begins with another engine. Inputs are seeded random numbers, equal for engines with inputs of the same shapes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import bolt_build
from bolt_build.bench.contestant import Effort, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.device.opening import open_device
from bolt_build.bench.peers.engine import LoadedEngine
from bolt_build.bench.turns import order
from bolt_build.digest import decode
from bolt_build.graph.ir import Array
from bolt_build.graph.operators import operators
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.runtime.loader import Engine
from bolt_build.scratch import scratch_folder

WARM_UP = 20


@dataclass(frozen=True)
class Entrant:
    """A built engine: the target directory of a build, and what it is called here. `queueing` has flags of the ABI's
    `bolt_queueing`: 1 keeps its kernels from overlapping, 2 its runs from being one graph."""

    name: str
    directory: str
    queueing: int = 0


@dataclass(frozen=True)
class Turn:
    """Runs of an engine in a turn: so many without the clock, then so many with it, each by itself. `idle`: each of
    these begins when the device has nothing to do, so that what it takes to queue the run counts."""

    untimed: int = 1
    timed: int = 1
    idle: bool = False


@dataclass(frozen=True)
class Turns:
    """Milliseconds of each engine, in the order in which they were measured, by name; the device's name. `inputs` is
    the form in which each reads its inputs. `steps` has the milliseconds of each step alone, by its name, where they
    were asked for."""

    device: str
    ms: Mapping[str, tuple[float, ...]]
    inputs: Mapping[str, str]
    steps: Mapping[str, tuple[tuple[str, float], ...]]

    def median(self, name: str) -> float:
        return statistics.median(self.ms[name])

    def ratio(self, name: str, to: str) -> dict[str, float]:
        """Times of an engine over those of another in the same turn: median and quartiles."""
        return spread([a / b for a, b in zip(self.ms[name], self.ms[to], strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high}


def measured_in_turns(
    entrants: Sequence[Entrant],
    batch: int,
    *,
    rounds: int = 200,
    turn: Turn | None = None,
    where: str = "cuda",
    steps: bool = False,
) -> Turns:
    """Starts a process that times the engines. Raises subprocess.CalledProcessError where it fails."""
    with scratch_folder() as folder:
        spec, out = folder / "spec.json", folder / "out.json"
        wanted = {"engines": [asdict(each) for each in entrants], "batch": batch, "rounds": rounds, "where": where}
        spec.write_text(json.dumps(wanted | {"turn": asdict(turn or Turn()), "steps": steps}))
        found = [str(Path(bolt_build.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        subprocess.run(
            [sys.executable, "-m", "bolt_build.bench.replays", str(spec), str(out)], check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in found if path)},
        )  # fmt: skip
        made = json.loads(out.read_text())
    return Turns(
        made["device"], {name: tuple(times) for name, times in made["ms"].items()}, made["inputs"],
        {name: tuple((step, ms) for step, ms in rows) for name, rows in made["steps"].items()},
    )  # fmt: skip


def time_in_turns(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the process started for it finds, as the JSON that becomes `Turns`."""
    device, batch, turn = open_device(spec["where"]), spec["batch"], Turn(**spec["turn"])
    entrants = [Entrant(**each) for each in spec["engines"]]
    engines = {each.name: _loaded(each, batch, device) for each in entrants}

    def runs(engine: LoadedEngine) -> list[float]:
        for _ in range(turn.untimed):
            engine.run()
        if turn.idle:
            device.wait()
        return [device.milliseconds(engine.run, engine.stream) for _ in range(turn.timed)]

    for _ in range(min(WARM_UP, spec["rounds"])):
        for engine in engines.values():
            runs(engine)
    ms: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(spec["rounds"]):
        for name in order(tuple(engines), number):
            ms[name] += runs(engines[name])
    inputs = {name: engine.form for name, engine in engines.items()}
    steps = {each.name: step_times(Path(each.directory), batch) for each in entrants if spec["steps"]}
    return {"device": device.name, "ms": ms, "inputs": inputs, "steps": steps}


def _loaded(entrant: Entrant, batch: int, device: Device) -> LoadedEngine:
    directory = Path(entrant.directory)
    feeds = _feeds(_library(directory), batch)
    setup = Setup(
        contestant=entrant.name, where=device.where, precision="", batch=batch, threads=0, model="", dims=(),
        library=str(_library(directory)), weights=str(_weights(directory)), inputs="", input_names=tuple(feeds),
        effort=Effort(),
    )  # fmt: skip
    return LoadedEngine(setup, feeds, device, entrant.queueing)


def _library(directory: Path) -> Path:
    return next(directory.glob("lib*.so"))


def _weights(directory: Path) -> Path:
    return next(directory.glob("*.weights"))


def _feeds(library: Path, batch: int) -> dict[str, Array]:
    with Engine(library) as opened:
        ports = opened.inputs(batch)
    random = np.random.RandomState(0)
    return {port.name: random.standard_normal(port.shape).astype(np.float32) for port in ports}


def step_times(directory: Path, batch: int) -> list[tuple[str, float]]:
    """Milliseconds of each step of a built engine alone, in a graph of executions, by its name; views have none."""
    operators()  # the plan's are found by their classes' names once they are imported
    engine = decode(EnginePlan, json.loads((directory / "engine.json").read_text()))
    (plan,) = (each for each in engine.plans if each.batch == batch)
    feeds = _feeds(_library(directory), batch)
    with Engine(_library(directory)).create(_weights(directory)) as model, model.context(batch) as context:
        given = {port.name: feeds[port.name].astype(port.numpy_dtype) for port in context.inputs}
        seconds = context.step_seconds(given)
    named = zip(plan.steps, seconds, strict=True)
    return [(step.name, 1e3 * each) for step, each in named if not step.view]


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(time_in_turns(spec)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
