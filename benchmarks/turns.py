"""Replays built engines in turns, all loaded in one process: what they take relative to each other, runs of one engine
differing less between turns than between processes.

    python benchmarks/turns.py SPEC.json OUT.json      # what `measured_in_turns` starts

In a turn each engine first runs without the clock, so that its own weights are what caches hold, then with it. Each
turn begins with another engine. Inputs are seeded random numbers, equal for engines with inputs of the same shapes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
WARM_UP = 20


@dataclass(frozen=True)
class Entrant:
    """A built engine: the target directory of a build, and what it is called here. `queueing` has flags of the border's
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
    with tempfile.TemporaryDirectory() as folder:
        spec, out = Path(folder) / "spec.json", Path(folder) / "out.json"
        wanted = {"engines": [asdict(each) for each in entrants], "batch": batch, "rounds": rounds, "where": where}
        spec.write_text(json.dumps(wanted | {"turn": asdict(turn or Turn()), "steps": steps}))
        subprocess.run([sys.executable, __file__, str(spec), str(out)], check=True)
        found = json.loads(out.read_text())
    return Turns(
        found["device"], {name: tuple(times) for name, times in found["ms"].items()}, found["inputs"],
        {name: tuple((step, ms) for step, ms in rows) for name, rows in found["steps"].items()},
    )  # fmt: skip


def feeds_of(library: Path, batch: int) -> dict[str, Any]:
    import numpy as np

    from bolt_build.runtime.loader import Engine

    with Engine(library) as opened:
        ports = opened.inputs(batch)
    random = np.random.RandomState(0)
    return {port.name: random.standard_normal(port.shape).astype(np.float32) for port in ports}


def step_times(directory: Path, batch: int) -> list[tuple[str, float]]:
    """Milliseconds of each step alone; views take none."""
    from bolt_build.build.engine_file import read_engine
    from bolt_build.runtime.loader import Engine

    (plan,) = (p for p in read_engine((directory / "engine.json").read_text()).plans if p.batch == batch)
    library = next(directory.glob("lib*.so"))
    feeds = feeds_of(library, batch)
    with Engine(library).create(next(directory.glob("*.weights"))) as model, model.context(batch) as context:
        given = {port.name: feeds[port.name].astype(port.numpy_dtype) for port in context.inputs}
        seconds = context.step_seconds(given)
    named = zip(plan.steps, seconds, strict=True)
    return [(step.name, 1e3 * each) for step, each in named if not step.view]


class Loaded:
    """An engine with its inputs on the device, in a stream of its own."""

    def __init__(self, entrant: Entrant, batch: int, device: Any) -> None:
        from bolt_build.runtime.loader import Engine

        directory = Path(entrant.directory)
        library = next(directory.glob("lib*.so"))
        feeds = feeds_of(library, batch)
        self._model = Engine(library).create(next(directory.glob("*.weights")))
        self._context = self._model.context(batch, queueing=entrant.queueing)
        ports = self._context.inputs
        self.form = ", ".join(dict.fromkeys(f"{port.dtype.value} {port.layout.value}" for port in ports))
        self.stream = device.new_stream()
        self._inputs = [device.buffer(port.nbytes) for port in ports]
        self._outputs = [device.buffer(port.nbytes) for port in self._context.outputs]
        for port, buffer in zip(ports, self._inputs, strict=True):
            buffer.fill(port.to_stored(feeds[port.name].astype(port.numpy_dtype)))
        self._from, self._to = ([each.address for each in some] for some in (self._inputs, self._outputs))

    def run(self) -> None:
        self._context.run_on(self._from, self._to, self.stream or None)


def time_in_turns(spec: Mapping[str, Any]) -> dict[str, Any]:
    from bolt_build.bench.device.opening import open_device

    device, batch = open_device(spec["where"]), spec["batch"]
    engines = {each["name"]: Loaded(Entrant(**each), batch, device) for each in spec["engines"]}
    turn = Turn(**spec["turn"])

    def runs(engine: Loaded) -> list[float]:
        for _ in range(turn.untimed):
            engine.run()
        if turn.idle:
            device.wait()
        return [device.milliseconds(engine.run, engine.stream) for _ in range(turn.timed)]

    names = list(engines)
    for _ in range(min(WARM_UP, spec["rounds"])):
        for name in names:
            runs(engines[name])
    ms: dict[str, list[float]] = {name: [] for name in names}
    for number in range(spec["rounds"]):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            ms[name] += runs(engines[name])
    inputs = {name: engine.form for name, engine in engines.items()}
    steps = {each["name"]: step_times(Path(each["directory"]), batch) for each in spec["engines"] if spec["steps"]}
    return {"device": device.name, "ms": ms, "inputs": inputs, "steps": steps}


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(time_in_turns(spec)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
