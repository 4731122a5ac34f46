"""What each step towards fast engines gains: an engine beside others that do without one of them, in turns.

    python benchmarks/engines/ablation.py FOLDER  # ResNet-50, batch 32 and 1, from its committed lock
    python benchmarks/engines/ablation.py FOLDER --model vgg16 --batch 32 --out OUT.json
    python benchmarks/engines/ablation.py FOLDER --plan  # anywhere: what each does without, and predicted gains

The lock is rewritten for each step that kernels make, as if what the step adds had never been measured: of what is left
the fastest in this machine's records (`bolt-build tune` leaves them in its cache) takes its place, else the lock's
runner-up, else the first by prediction; the result says how many of each. Two steps lie between kernels, and are
switched off where the same engine runs. Predicted gains are those of the families' predictions for the kernels of both
plans, of whole-engine tuning what the lock says, of overlap a launch behind each kernel but one. Beside them is a table
by layer (`layers.py`), and for each engine the sum of its steps alone, so that what launches and gaps cost is seen.
Writes `results/steps.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.bolt_command import build_one
from benchmarks.engines import layers
from benchmarks.engines.fusion_models import Model, write_models
from bolt_build.bench.replays import Entrant, Turns, measured_in_turns
from bolt_build.build.builder import BuildOptions
from bolt_build.digest import digest
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.lockfile.contents import LockedTarget, LockEntry
from bolt_build.lockfile.reading import Lock, lock_text
from bolt_build.schema.load import load_recipe
from bolt_build.tuning.choice.winners import evidence as evidence_of
from bolt_build.workflows.evidence import Evidence, gather

SERIAL, UNRECORDED = 1, 2
"""Flags of the ABI's `bolt_queueing`."""
Kept = Callable[[KernelProblem, Candidate], bool]


@dataclass(frozen=True)
class Step:
    """An engine without something: `without` in words, compared with the engine `beside`. `kept` says which kernels
    remain, None all; `queueing` are flags of a run."""

    name: str
    without: str
    beside: str = "winners"
    kept: Kept | None = None
    whole: bool = False
    persistent: str = "auto"
    queueing: int = 0


def from_planes(problem: KernelProblem) -> bool:
    """True for a convolution that rearranges the model's planes in the pass in which it reads them, whatever the same
    kernel computes behind it."""
    rank, op = len(problem.outputs[0].shape), problem.op
    first = op.sequence[0].op
    own = problem.inputs[: 1 if isinstance(first, Conv) else 0]
    return any(len(each.shape) == rank and each.format.layout is Layout.ROW for each in own)


def has(candidate: Candidate, name: str) -> bool:
    return name in dict(candidate.parameters)


STEPS = (
    Step("all", "nothing", "all", whole=True),
    Step("winners", "kernels chosen in the whole engine", "all"),
    Step("stem", "a first layer that reads the model's planes itself", kept=lambda p, c: not from_planes(p)),
    Step("slices", "products computed in slices of their depth", kept=lambda p, c: not has(c, "partial")),
    Step("resident", "convolutions with weights in registers", kept=lambda p, c: not has(c, "resident")),
    Step("pairs", "two products, or a convolution and a pooling, in one kernel", persistent="never"),
    Step("overlap", "kernels that begin before the one in front has finished", "all", whole=True, queueing=SERIAL),
    Step("recording", "one graph a run: kernels queued one by one", "all", whole=True, queueing=UNRECORDED),
    Step(
        "none", "all of these", "all", persistent="never", queueing=SERIAL | UNRECORDED,
        kept=lambda p, c: not (from_planes(p) or has(c, "partial") or has(c, "resident")),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Rewritten:
    """A lock without some kernels: how many entries are as they were, gone, and from where the others come."""

    part: LockedTarget
    counts: Mapping[str, int] = field(default_factory=dict)


def rewritten(evidence: Evidence, step: Step) -> Rewritten:
    """The lock's part for the target as it would be without what the step is about; for all but `whole` without the
    choice for the whole engine, which rests on all kernels."""
    part = evidence.lock
    assert part is not None, "a lock is asked for before"
    if step.whole:
        return Rewritten(part)
    part = replace(part, covers=(), engines=())
    kept = step.kept
    if kept is None:
        return Rewritten(part)
    trials = {each.problem.digest: each for each in evidence.problems.problems}
    left = tuple(
        replace(each, trials=tuple(replace(t, of=None) for t in each.trials if kept(each.problem, t.candidate)))
        for each in evidence.problems.problems
    )
    found = {each.problem: each for each in evidence_of(replace(evidence.problems, problems=left), evidence.records)}
    counts = dict.fromkeys(("as it was", "records", "runner-up", "predicted", "gone"), 0)
    entries: list[LockEntry] = []
    for entry in part.entries:
        problem = trials[entry.problem].problem if entry.problem in trials else None
        if problem is None or kept(problem, entry.winner):
            counts["as it was"] += 1
            entries.append(entry)
            continue
        other = best_predicted(evidence, problem, kept)
        if entry.problem in found:
            how, new = "records", replace(entry, winner=found[entry.problem].winner.candidate,
                                          median=round(found[entry.problem].median, 3))  # fmt: skip
        elif entry.runner_up is not None and entry.runner_up_median is not None and kept(problem, entry.runner_up):
            how, new = "runner-up", replace(entry, winner=entry.runner_up, median=entry.runner_up_median)
        elif other is not None:
            how, new = "predicted", replace(entry, winner=other[1], median=round(1e6 * other[0], 3))
        else:
            counts["gone"] += 1
            continue
        counts[how] += 1
        entries.append(replace(new, runner_up=None, runner_up_median=None))
    return Rewritten(replace(part, entries=tuple(entries)), counts)


def best_predicted(evidence: Evidence, problem: KernelProblem, kept: Kept) -> tuple[float, Candidate] | None:
    """The legal kernel that is predicted to take least, and its seconds; None where none is kept."""
    found = [
        (family.predict(problem, candidate, evidence.target), str(candidate), candidate)
        for family in evidence.families
        for candidate in family.candidates(problem, evidence.target)[0]
        if kept(problem, candidate)
    ]
    return None if not found else (min(found)[0], min(found)[2])


@dataclass(frozen=True)
class Planned:
    """The engine of a step, which has this place in `STEPS`: `key` is equal for equal plans, `predicted_us` what
    families predict for its kernels, `alone_us` what its lock says of them, in the sum. `counts`: see `Rewritten`."""

    place: int
    recipe: Path
    key: str
    kernels: int
    predicted_us: float
    alone_us: float
    counts: Mapping[str, int]

    @property
    def step(self) -> Step:
        return STEPS[self.place]


def write_recipe(folder: Path, arguments: argparse.Namespace, batch: int, step: Step) -> Path:
    """The bundled recipe for one batch; its model is written once for all, in `models`."""
    path = folder / f"{arguments.model}_b{batch}_{step.name}.yaml"
    path.write_text(
        f"bolt: 1\nname: {path.stem}\nmodel: {{onnx: models/{arguments.model}.onnx, batch: {batch}}}\n"
        f"targets: {{{arguments.target}: {{precision: fp16}}}}\n"
        f"policy: {{fusion: {{persistent: {step.persistent}}}}}\n"
        f"tuning: {{lock: {path.stem}.lock}}\nverify: {{samples: 1}}\n"
    )
    return path


def known(recipe_path: Path, arguments: argparse.Namespace, folder: Path) -> Evidence:
    recipe = load_recipe(recipe_path)
    (spec,) = recipe.targets
    return gather(recipe, spec, BuildOptions(output=folder / "generated", cache=arguments.cache), lambda text: None)


def plan(arguments: argparse.Namespace, folder: Path, batch: int) -> list[Planned]:
    """The engine of each step, with its lock and recipe written."""
    write_models([Model(arguments.model, arguments.model)], folder / "models", 1)
    first = write_recipe(folder, arguments, batch, STEPS[0])
    shutil.copy(arguments.locks / f"{arguments.model}.lock", first.with_suffix(".lock"))
    everything = known(first, arguments, folder)
    if everything.lock is None:
        raise SystemExit(f"{arguments.locks / arguments.model}.lock has nothing for {arguments.target}")
    parts = {step.name: rewritten(everything, step) for step in STEPS}
    with ProcessPoolExecutor(max(1, min(arguments.jobs, len(STEPS)))) as pool:
        jobs = [pool.submit(plan_step, arguments, folder, batch, place, parts[s.name]) for place, s in enumerate(STEPS)]
        return [job.result() for job in jobs]


def plan_step(arguments: argparse.Namespace, folder: Path, batch: int, place: int, made: Rewritten) -> Planned:
    """The engine of one of `STEPS`, with its lock and recipe written."""
    step = STEPS[place]
    path = write_recipe(folder, arguments, batch, step)
    path.with_suffix(".lock").write_text(lock_text(Lock((made.part,))))
    evidence = known(path, arguments, folder)
    (batch_plan,) = evidence.engine.plan.plans
    launched = [each for each in batch_plan.steps if not each.view]
    by_name, times = {each.name: each for each in evidence.families}, times_of(made.part)
    predicted = [by_name[s.candidate.family].predict(s.problem, s.candidate, evidence.target) for s in launched]
    alone = [times.get((s.problem.digest, s.candidate), 1e6 * p) for s, p in zip(launched, predicted, strict=True)]
    return Planned(place, path, digest(batch_plan), len(launched), 1e6 * sum(predicted), sum(alone), made.counts)


def times_of(part: LockedTarget) -> dict[tuple[str, Candidate], float]:
    """Microseconds of kernels alone, swapped ones included."""
    found = {(entry.problem, entry.winner): entry.median for entry in part.entries}
    return found | {(problem, kernel): us for engine in part.engines for problem, kernel, us in engine.swaps}


def predicted_gain(each: Planned, beside: Planned, whole: float | None, launch: float) -> float | None:
    """Microseconds; None where nothing predicts it."""
    if each.step.name == "winners":
        return whole
    if each.step.name == "overlap":
        return (each.kernels - 1) * launch
    if each.step.name in ("all", "recording", "none"):
        return None
    return each.predicted_us - beside.predicted_us


def whole_engine_gain(lock: Path, target: str, batch: int) -> float | None:
    """What the lock says that the choice for the whole engine of a batch saves."""
    from bolt_build.lockfile.reading import load_lock

    part = load_lock(lock).target(target)
    engines = () if part is None else part.engines
    return next((engine.before - engine.after for engine in engines if engine.batch == batch), None)


def build(arguments: argparse.Namespace, folder: Path, plans: Sequence[Planned]) -> dict[str, dict[str, Any]]:
    """Each engine by its step, one for equal plans; how its kernels and its verification turned out, or why there is
    none."""
    words = ["--target", arguments.target, "-j", str(max(1, arguments.jobs // arguments.builds))]
    words += [] if arguments.cache is None else ["--cache", str(arguments.cache)]

    stands_for: dict[str, Path] = {}
    for each in plans:
        stands_for.setdefault(each.key, each.recipe)
    with ThreadPoolExecutor(arguments.builds) as pool:
        found = pool.map(lambda path: build_one(folder, path.name, *words), stands_for.values())
        made = dict(zip(stands_for, found, strict=True))
    return {each.step.name: made[each.key] for each in plans}


def rows_of(
    plans: Sequence[Planned], built: Mapping[str, Mapping[str, Any]], turns: Turns, whole: float | None, launch: float
) -> list[dict[str, Any]]:
    """A row a step, its gain in microseconds and as a part of the time without it."""
    by_name, rows = {each.step.name: each for each in plans}, []
    for each in plans:
        name, beside = each.step.name, each.step.beside
        row: dict[str, Any] = {
            "step": name, "without": each.step.without, "beside": beside, "launches": each.kernels,
            "other_kernels_from": dict(each.counts), "verified": built[name].get("verified"),
            "predicted_gain_us": predicted_gain(each, by_name[beside], whole, launch),
            "alone_in_lock_us": each.alone_us,
        }  # fmt: skip
        if name in turns.ms:
            alone = 1e3 * sum(ms for _, ms in turns.steps[name])
            engine = 1e3 * turns.median(name)
            row |= {"engine_us": engine, "steps_alone_us": alone, "between_us": engine - alone}
        if name in turns.ms and beside in turns.ms and name != beside:
            saved = turns.ratio(beside, name)
            row |= {
                "gain_us": 1e3 * (turns.median(name) - turns.median(beside)), "gain": 1 - saved["median"],
                "gain_quartiles": [1 - saved["high"], 1 - saved["low"]],
                "same_engine": each.key == by_name[beside].key,
            }  # fmt: skip
        rows.append(row | ({"failed": built[name]["failed"]} if "failed" in built[name] else {}))
    return rows


def measure(arguments: argparse.Namespace, folder: Path, batch: int) -> dict[str, Any]:
    """One batch: built, timed, and compared, with the table by layer of the engine with everything."""
    plans = plan(arguments, folder, batch)
    whole = whole_engine_gain(plans[0].recipe.with_suffix(".lock"), arguments.target, batch)
    launch = 1e6 * target_launch(arguments.target)
    show_plans(plans, whole, launch)
    if arguments.plan:
        return {}
    built = build(arguments, folder, plans)
    entrants = [
        Entrant(each.step.name, built[each.step.name]["directory"], each.step.queueing)
        for each in plans
        if "directory" in built[each.step.name]
    ]
    turns = measured_in_turns(entrants, batch, rounds=arguments.rounds, steps=True)
    rows = rows_of(plans, built, turns, whole, launch)
    for row in rows:
        print(json.dumps({key: row.get(key) for key in ("step", "engine_us", "between_us", "gain_us", "gain",
                                                         "predicted_gain_us")}), flush=True)  # fmt: skip
    return {"device": turns.device, "rounds": arguments.rounds, "steps": rows,
            "layers": layer_table(plans[0].recipe, arguments.target, turns)}  # fmt: skip


def layer_table(recipe: Path, target: str, turns: Turns) -> dict[str, Any]:
    """The table of `layers.py` for the engine with everything."""
    explained = layers.explanation(recipe, target)
    (batch,) = explained["batches"]
    of = {layer["name"]: layer["kernel"] for layer in batch["layers"]}
    steps = [{"step": name, "ms": ms, "kernel": of.get(name, ""), "parameters": {}} for name, ms in turns.steps["all"]]
    return layers.table({"steps": steps, "replay_ms": turns.median("all")}, batch)


def target_launch(name: str) -> float:
    from bolt_build.targets import target_named

    return target_named(name).launch_seconds


def show_plans(plans: Sequence[Planned], whole: float | None, launch: float) -> None:
    by_name = {each.step.name: each for each in plans}
    for each in plans:
        gain = predicted_gain(each, by_name[each.step.beside], whole, launch)
        said = "" if gain is None else f", {each.step.beside} is predicted to save {gain:.1f} us"
        print(
            f"{each.step.name:10} {each.kernels:3} launches, alone {each.alone_us:8.1f} us{said}; {dict(each.counts)}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="resnet50", help="a bundled recipe")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--locks", type=Path, default=ROOT / "recipes", help="where the recipes' locks are")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--cache", type=Path, help="bolt-build's cache, records included (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--plan", action="store_true", help="build and measure nothing")
    parser.add_argument("--out", type=Path, help="write here instead of results/steps.json")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments.cache = None if arguments.cache is None else arguments.cache.resolve()
    found = {str(batch): measure(arguments, folder, batch) for batch in arguments.batch}
    if arguments.plan:
        return 0
    result = record.environment("nvidia-cutlass", "onnxruntime") | {
        "model": arguments.model, "target": arguments.target, "dtype": "fp16", "accumulator": "fp32", "batches": found,
    }  # fmt: skip
    print(record.write("steps", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
