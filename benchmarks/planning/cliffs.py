"""Looks for cliffs: steps of many kinds of convolutional networks that are predicted to leave most of a GPU unused.

    python benchmarks/planning/cliffs.py                                    # all networks, targets and batches
    python benchmarks/planning/cliffs.py --model unet --target t4 --batch 1 # some of them, shown and not written
    python benchmarks/planning/cliffs.py --onnx FILE... --target h200       # networks of other people, shown

`cliff_models.py` has the networks. Each is planned without a lock, so that all kernels are those predicted fastest; no
GPU is needed. A step's bound is what its bytes take at the target's bandwidth, its operations at the peak rate, or one
launch. A step under 5% of it is a cliff; so are steps of one family and operator that together take over 3% of an
engine and stay under a quarter. Plans that `results/cliffs.json` has already of the same package are not made again.
Writes `results/cliffs.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.planning import cliff_models, cliff_net
from bolt_build.digest import digest
from bolt_build.errors import BoltError
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem, bound
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named

TARGETS, BATCHES = ("h200", "a100", "t4"), (1, 32, 128)
CLIFF = 0.05
"""Share of its bound that every step should reach."""
SHARE, REACHED = 0.03, 0.25
"""Of an engine's time, and of the bound: what kinds of steps should not exceed and stay under."""
PACKAGE = ROOT / "bolt_build"


@dataclass(frozen=True)
class Kind:
    """Steps of one operator by one family: how many, their seconds and those of their bounds."""

    steps: int
    seconds: float
    bound: float


@dataclass(frozen=True)
class Cliff:
    """A step under 5% of its bound."""

    step: str
    what: str
    kernel: str
    seconds: float
    bound: float


@dataclass(frozen=True)
class Planned:
    """The predicted engine of a network: its seconds, its kinds of steps by name, and its cliffs."""

    seconds: float
    kinds: dict[str, Kind]
    cliffs: tuple[Cliff, ...]

    @property
    def slow(self) -> dict[str, Kind]:
        """Kinds of steps over 3% of the engine that reach less than a quarter of their bound."""
        return {
            name: kind
            for name, kind in self.kinds.items()
            if kind.seconds > SHARE * self.seconds and kind.bound < REACHED * kind.seconds
        }


def words(problem: KernelProblem) -> str:
    """`conv f16[32,64,56,56], f16[64,64,3,3] -> f16[32,64,56,56]`"""
    operands = ", ".join(f"{o.format.dtype.value}{list(o.shape)}".replace(" ", "") for o in problem.inputs[:2])
    made = problem.outputs[0]
    return f"{problem.op.kind} {operands} -> {made.format.dtype.value}{list(made.shape)}".replace(", ", ",")


@dataclass(frozen=True)
class Timed:
    """A step of a predicted engine, its seconds and those of its bound."""

    name: str
    problem: KernelProblem
    candidate: Candidate
    seconds: float
    bound: float


def timed_steps(model: Path, target_name: str, batch: int, folder: Path) -> list[Timed]:
    """The steps of the network's engine for one target and batch that are planned without a lock and compute
    anything. Raises BoltError."""
    recipe_path = folder / "cliff.yaml"
    recipe_path.write_text(
        f"bolt: 1\nname: cliff\nmodel: {{onnx: {model}, batch: {batch}}}\n"
        f"targets: {{{target_name}: {{precision: fp16}}}}\ntuning: {{lock: null}}\n"
    )
    recipe = load_recipe(recipe_path)
    (spec,) = recipe.targets
    target = target_named(target_name)
    families = {family.name: family for family in load(target)}
    graphs = load_model(model).graphs((batch,), recipe.model.dims, recipe.model.lengths)
    (planned,) = plan_engine(graphs, recipe, spec, target, tuple(families.values())).plan.plans
    found = []
    for step in planned.steps:
        if not step.view:
            seconds = families[step.candidate.family].predict(step.problem, step.candidate, target)
            found.append(Timed(step.name, step.problem, step.candidate, seconds, bound(step.problem, target)))
    return found


def planned(steps: Iterable[Timed], name_of: Callable[[Timed], str]) -> Planned:
    """The steps by the kind that `name_of` gives each, and their cliffs."""
    kinds, cliffs = dict[str, Kind](), list[Cliff]()
    for step in steps:
        old = kinds.get(name_of(step), Kind(0, 0.0, 0.0))
        kinds[name_of(step)] = Kind(old.steps + 1, old.seconds + step.seconds, old.bound + step.bound)
        if step.bound < CLIFF * step.seconds:
            cliffs.append(Cliff(step.name, words(step.problem), str(step.candidate), step.seconds, step.bound))
    return Planned(sum(kind.seconds for kind in kinds.values()), kinds, tuple(cliffs))


def operator_of(step: Timed) -> str:
    """Family and operator."""
    return f"{step.candidate.family} {step.problem.op.kind}"


def plan(model: Path, target_name: str, batch: int, folder: Path) -> Planned:
    """Plans the network for one target and batch, without a lock. Raises BoltError."""
    return planned(timed_steps(model, target_name, batch, folder), operator_of)


def planned_alone(model: str, target: str, batch: int) -> dict[str, Any]:
    """The same of one of `cliff_models`, as JSON has it, in a folder of its own: a process of several plans it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{model}.onnx"
        onnx.save(cliff_models.MODELS[model](), file)
        return asdict(plan(file, target, batch, Path(folder)))


def show(name: str, planned: Planned) -> None:
    least = sum(kind.bound for kind in planned.kinds.values())
    print(f"{name}: {planned.seconds * 1e6:.1f} us, {least / planned.seconds:.0%} of its bounds")
    for kind, found in planned.slow.items():
        print(f"  {kind}, {found.steps}: {found.seconds / planned.seconds:.0%}, at {found.bound / found.seconds:.0%}")
    for cliff in planned.cliffs:
        print(f"  {cliff.step}: {cliff.seconds * 1e6:.1f} us, {cliff.bound / cliff.seconds:.1%}: {cliff.what}")
        print(f"    {cliff.kernel}")


def planned_of(data: dict[str, Any]) -> Planned:
    """What `asdict` made of one."""
    kinds = {name: Kind(**kind) for name, kind in data["kinds"].items()}
    return Planned(data["seconds"], kinds, tuple(Cliff(**cliff) for cliff in data["cliffs"]))


def cases(models: list[str], targets: list[str], batches: list[int]) -> Iterator[tuple[str, str, int]]:
    for model in models or cliff_models.MODELS:
        for target in targets or TARGETS:
            for batch in batches or BATCHES:
                yield model, target, batch


def package_key() -> str:
    """Changes with every file that plans may depend on."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))]
    networks = (Path(each.__file__).read_text(encoding="utf-8") for each in (cliff_models, cliff_net))
    return digest((texts, *networks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], choices=tuple(cliff_models.MODELS))
    parser.add_argument("--onnx", nargs="+", type=Path, default=[])
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--batch", action="append", default=[], type=int)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="plans made at once")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    some = bool(arguments.model or arguments.target or arguments.batch or arguments.onnx)
    path, key = arguments.out or record.RESULTS / "cliffs.json", package_key()
    known: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        earlier = json.loads(path.read_text(encoding="utf-8"))
        known = earlier["plans"] if earlier["package"] == key else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in arguments.onnx:
            for target in arguments.target or TARGETS:
                for batch in arguments.batch or BATCHES:
                    try:
                        show(f"{file.stem} {target} {batch}", plan(file.resolve(), target, batch, folder))
                    except BoltError as error:
                        print(f"{file.stem} {target} {batch}: {error.diagnostics[0].message[:200]}")
    if arguments.onnx:
        return
    wanted = {f"{model} {target} {batch}": (model, target, batch)
              for model, target, batch in cases(arguments.model, arguments.target, arguments.batch)}  # fmt: skip
    with ProcessPoolExecutor(arguments.jobs) as pool:
        missing = {pool.submit(planned_alone, *case): label for label, case in wanted.items() if label not in known}
        for done in as_completed(missing):
            known[missing[done]] = done.result()
            if not some:
                plans = {label: known[label] for label in wanted if label in known}
                record.save(path, record.environment() | {"package": key, "plans": plans})
    for label in wanted:
        show(label, planned_of(known[label]))


if __name__ == "__main__":
    main()
