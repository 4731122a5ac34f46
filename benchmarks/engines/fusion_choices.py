"""Models in which products follow each other, end to end, as `fusion.persistent: auto`, `always` and `never` build
them; what deepening costs, and what activations do.

    python benchmarks/engines/fusion_choices.py FOLDER  # all of it, on a machine with the GPU
    python benchmarks/engines/fusion_choices.py FOLDER --stage tune                  # or a stage after the other, ...
    # ... some models at a time
    python benchmarks/engines/fusion_choices.py FOLDER --stage time --groups mlp_32768 resnet50
    python benchmarks/engines/fusion_choices.py FOLDER --list  # anywhere: plans, with predicted times
    # a rehearsal
    python benchmarks/engines/fusion_choices.py FOLDER --target host --batch 1 --groups mlp_32768 --out OUT

All models are tuned as one (`fusion_models.py`), so that each kernel is compiled and measured once and the three
policies choose from the same times; the choice of whole engines is left out of all of them. Policies whose plans are
the same share an engine. Engines are built and verified, then those of a group replayed in turns in one process
(`turns.py`). What is finished in FOLDER is not done again. Activations are compared with kernels chosen by prediction:
the same tiles. Writes `results/fusion_choices.json` from all groups that were timed in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import CommandFailed, bolt
from benchmarks.engines.fusion_models import BATCH, GROUPS, Model, write_models, write_together
from benchmarks.engines.fusion_plans import (
    POLICIES,
    TOGETHER,
    Engine,
    Planned,
    engines_of,
    plan_all,
    without_engines,
    write_recipe,
    write_tuning_recipe,
)
from bolt_build.bench.replays import Entrant, Turns, measured_in_turns

NOTEWORTHY = 0.08
"""Bolt has no activation that costs more: what does is told layer by layer."""
PAPER_DEEPENING = 0.153
STAGES = ("tune", "build", "time")


@dataclass(frozen=True)
class Built:
    """The engine that stands for all with its plan: where it lies and whether it was verified; or why there is none."""

    engine: str
    directory: str
    verified: bool | None
    failed: str = ""


def tune(arguments: argparse.Namespace, folder: Path) -> None:
    """Measures every kernel once, for the groups that were asked for and those that were before. The winners go into a
    lock of their own."""
    tuned, winners = folder / f"{TOGETHER}.tuned.json", folder / f"{TOGETHER}.winners.lock"
    known = json.loads(tuned.read_text())["models"] if tuned.is_file() and winners.is_file() else []
    models = {each.model.name: each.model for group in GROUPS for each in engines_of(group) if each.lock == TOGETHER}
    wanted = [each.model.name for group in arguments.groups for each in engines_of(group) if each.lock == TOGETHER]
    if set(wanted) <= set(known) and not arguments.again:
        return
    together = [model for name, model in models.items() if name in (*known, *wanted)]
    paths = write_models(together, folder / "models", arguments.jobs)
    write_together(paths, folder / f"{TOGETHER}.onnx")
    recipe = write_tuning_recipe(folder, arguments.target, arguments.candidates)
    found = bolt(folder, "tune", recipe.name, "-j", str(arguments.jobs), *cache_words(arguments))
    without_engines(folder / f"{TOGETHER}.lock", winners)
    kept = {key: found[key] for key in ("wall_seconds", "seconds", "compile", "measured_now", "statuses")}
    record.save(tuned, {"models": [each.name for each in together], "problems": len(found["problems"])} | kept)


def planned(arguments: argparse.Namespace, folder: Path) -> dict[str, Planned]:
    """The plans of all engines of the groups, by name."""
    engines = [each for group in arguments.groups for each in engines_of(group)]
    write_models(list(dict.fromkeys(each.model for each in engines)), folder / "models", arguments.jobs)
    paths = [write_recipe(each, folder, arguments.target, arguments.batch) for each in engines]
    return plan_all(paths, folder / "generated", arguments.cache, arguments.jobs)


def build(arguments: argparse.Namespace, folder: Path, plans: Mapping[str, Planned]) -> dict[str, Built]:
    """Every engine by its name, one for all that have the same plan; some are built at a time."""
    stands_for: dict[tuple[str, str], str] = {}
    for group in arguments.groups:
        for engine in engines_of(group):
            stands_for.setdefault((engine.model.name, plans[engine.name].key), engine.name)
    jobs = str(max(1, arguments.jobs // arguments.builds))

    def make(name: str) -> Built:
        directory = str(folder / "generated" / name / arguments.target)
        try:
            found = bolt(folder, "build", f"{name}.yaml", "-j", jobs, *cache_words(arguments))
        except CommandFailed as error:
            print(error, file=sys.stderr, flush=True)
            return Built(name, directory, None, str(error))
        return Built(name, directory, found["targets"][0]["verified"])

    with ThreadPoolExecutor(arguments.builds) as pool:
        made = dict(zip(stands_for.values(), pool.map(make, stands_for.values()), strict=True))
    return {
        engine.name: made[stands_for[engine.model.name, plans[engine.name].key]]
        for group in arguments.groups
        for engine in engines_of(group)
    }


def timed(
    arguments: argparse.Namespace, group: str, plans: Mapping[str, Planned], built: Mapping[str, Built]
) -> dict[str, Any]:
    """A group's engines in turns, and what follows from their times."""
    engines = list(engines_of(group))
    there = {built[each.name].engine: built[each.name] for each in engines if not built[each.name].failed}
    entrants = [Entrant(name, each.directory) for name, each in there.items()]
    swapped = group == "activations"
    where = "cpu" if arguments.target == "host" else "cuda"
    turns = measured_in_turns(entrants, arguments.batch, rounds=arguments.rounds, where=where, steps=swapped)
    rows = [engine_row(each, plans[each.name], built[each.name], turns, arguments.batch) for each in engines]
    found: dict[str, Any] = {"group": group, "device": turns.device, "rounds": arguments.rounds, "engines": rows}
    names = {(each.model.name, each.policy): built[each.name].engine for each in engines if each.lock != "predicted"}
    found["choices"] = [choices(model, plans, names, turns) for model in GROUPS[group] if model.policies]
    found["deepening"] = [
        deepening(model, names, turns, rows) for model in GROUPS[group] if model.variant == "deep"
    ]  # fmt: skip
    found["activations"] = activations(group, built, turns) if swapped else None
    return found


def engine_row(engine: Engine, plan: Planned, built: Built, turns: Turns, batch: int) -> dict[str, Any]:
    row = {
        "engine": engine.name, "model": engine.model.name, "policy": engine.policy, "kernels_from": plan.source,
        "kernels": plan.kernels, "of_these_measured": plan.measured, "pairs": len(plan.pairs), "fused": plan.fused,
        "parameters": plan.parameters, "same_plan_as": None if built.engine == engine.name else built.engine,
        "verified": built.verified,
    }  # fmt: skip
    if built.failed:
        return row | {"failed": built.failed}
    median = turns.median(built.engine)
    return row | {"ms": median, "samples_per_second": 1e3 * batch / median}


def choices(
    model: Model, plans: Mapping[str, Planned], names: Mapping[tuple[str, str], str], turns: Turns
) -> dict[str, Any]:
    """How `auto` does beside the better of the others, turn by turn, and what it made of each pair.

    It counts as slower where three turns in four say so; of two engines that are one it is as fast by definition.
    """
    auto, *others = (names[model.name, policy] for policy in POLICIES)
    found: dict[str, Any] = {"model": model.name}
    if any(name not in turns.ms for name in (auto, *others)):
        return found | {"failed": "not all of its engines were built"}
    best = min(others, key=turns.median)
    against = turns.ratio(auto, best)
    plan = plans[f"{model.name}_auto"]
    notable = [pair for pair in plan.pairs if pair["notable"]]
    return found | {
        "ms": {policy: turns.median(names[model.name, policy]) for policy in POLICIES},
        "pairs": len(plan.pairs),
        "fused": {policy: plans[f"{model.name}_{policy}"].fused for policy in POLICIES},
        "auto_over_better": against, "better": POLICIES[1 + others.index(best)],
        "auto_is_slower": auto != best and against["low"] > 1,
        "never_over_auto": turns.ratio(names[model.name, "never"], auto),
        "notable_pairs": len(notable), "notable_and_fused": sum(pair["fused"] for pair in notable),
        "notable_and_apart": [f"{' then '.join(p['nodes'])}: {p['reason']}" for p in notable if not p["fused"]],
        "pairs_of_auto": plan.pairs, "no_pairs_because": plan.illegal,
    }  # fmt: skip


def deepening(
    model: Model, names: Mapping[tuple[str, str], str], turns: Turns, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The part of the base's images a second that a deepened model loses, as each policy builds it."""
    assert model.base is not None, model
    base = names[model.base, "auto"]
    parameters = {row["model"]: row["parameters"] for row in rows}
    costs = {
        policy: 1 - turns.median(base) / turns.median(names[model.name, policy])
        for policy in POLICIES
        if {base, names[model.name, policy]} <= set(turns.ms)
    }
    return {
        "model": model.name, "base": model.base, "cost": costs,
        "parameters": [parameters[model.base], parameters[model.name]],
    }  # fmt: skip


def activations(group: str, built: Mapping[str, Built], turns: Turns) -> dict[str, Any]:
    """What each activation costs beside ReLU, and of those that cost much the layers that it goes to."""
    engines = [each for each in engines_of(group) if each.lock == "predicted" and not built[each.name].failed]
    (base,) = (built[each.name].engine for each in engines if each.model.variant is None)
    costs, layers = {}, {}
    for engine in engines:
        name = built[engine.name].engine
        if engine.model.variant is None:
            continue
        costs[engine.model.variant] = turns.ratio(name, base)["median"] - 1
        if costs[engine.model.variant] > NOTEWORTHY:
            layers[engine.model.variant] = layer_costs(turns.steps[base], turns.steps[name])
    times = [turns.median(built[each.name].engine) for each in engines]
    return {
        "relu_ms": turns.median(base), "longer_by": costs, "spread": max(times) / min(times) - 1,
        "over_8_percent": layers,
    }  # fmt: skip


def layer_costs(base: Sequence[tuple[str, float]], other: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """The eight steps that take most longer alone than the base's step in the same place; where plans have other
    numbers of steps, the eight longest of the other engine."""
    same = len(base) == len(other)
    before = [ms for _, ms in base] if same else [0.0] * len(other)
    rows = sorted(zip(other, before, strict=True), key=lambda row: row[1] - row[0][1])
    return [{"step": name, "us": 1e3 * ms, "base_us": 1e3 * was if same else None} for (name, ms), was in rows[:8]]


def summary(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The lines that are looked for, over all groups that were timed."""
    found = [each for group in groups for each in group["choices"] if "ms" in each]
    costs = [each["cost"]["auto"] for group in groups for each in group["deepening"] if "auto" in each["cost"]]
    swapped = [group["activations"] for group in groups if group["activations"] is not None]
    return {
        "auto_over_better": {each["model"]: each["auto_over_better"]["median"] for each in found},
        "auto_is_slower": [each["model"] for each in found if each["auto_is_slower"]],
        "fused": {each["model"]: each["fused"] for each in found},
        "never_over_auto": {each["model"]: each["never_over_auto"]["median"] for each in found},
        "notable_pairs_apart": {each["model"]: each["notable_and_apart"] for each in found},
        "mean_deepening_cost": statistics.mean(costs) if costs else None, "paper_t4": PAPER_DEEPENING,
        "activations_longer_by": swapped[0]["longer_by"] if swapped else None,
        "not_verified": [row["engine"] for group in groups for row in group["engines"] if row["verified"] is not True],
    }  # fmt: skip


def cache_words(arguments: argparse.Namespace) -> tuple[str, ...]:
    return () if arguments.cache is None else ("--cache", str(arguments.cache))


def show_plans(arguments: argparse.Namespace, plans: Mapping[str, Planned]) -> None:
    for group in arguments.groups:
        for engine in engines_of(group):
            plan = plans[engine.name]
            kernels = f"{plan.measured} of {plan.kernels} kernels measured ({plan.source})"
            size = f"{plan.parameters / 1e6:.2f} M parameters"
            print(f"{plan.engine:30} {plan.fused:3} of {len(plan.pairs):3} pairs, {kernels}, {size}, {plan.key[:8]}")
            if engine.policy == "auto" and arguments.list:
                for pair in plan.pairs:
                    gain = "" if pair["gain"] is None else f"{pair['gain']:+6.1%}"
                    print(f"    {'fused' if pair['fused'] else 'apart'} {gain} {pair['what']}: {pair['reason']}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP")
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this (repeatable; default: all)")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--candidates", type=int, default=4, help="kernels to measure of each problem")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--cache", type=Path, help="bolt-build's cache (default: the user's)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--builds", type=int, default=4, help="engines that are built at once")
    parser.add_argument("--again", action="store_true", help="tune although FOLDER has a lock")
    parser.add_argument("--list", action="store_true", help="plan, and say what each policy makes of the pairs")
    parser.add_argument("--out", type=Path, help="write here instead of results/fusion_choices.json")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments.cache = None if arguments.cache is None else arguments.cache.resolve()
    stages = arguments.stage or STAGES
    if "tune" in stages and arguments.target != "host" and not arguments.list:
        tune(arguments, folder)
    if arguments.list or not {"build", "time"}.isdisjoint(stages):
        plans = planned(arguments, folder)
        show_plans(arguments, plans)
    if arguments.list or stages == ["tune"]:
        return 0
    built = build(arguments, folder, plans)
    broken = any(each.failed for each in built.values())
    for group in arguments.groups if "time" in stages else ():
        try:
            found = timed(arguments, group, plans, built)
        except subprocess.CalledProcessError as error:
            broken = True
            print(f"{group}: {error}", file=sys.stderr, flush=True)
            continue
        record.save(folder / f"timed_{group}.json", found)
        print(json.dumps({"group": group, **summary([found])}, indent=1), flush=True)
    files = [folder / f"timed_{group}.json" for group in GROUPS]
    groups = [json.loads(path.read_text()) for path in files if path.is_file()]
    tuned = folder / f"{TOGETHER}.tuned.json"
    result = record.environment("nvidia-cutlass", "onnxruntime", "onnx") | {
        "target": arguments.target, "batch": arguments.batch, "dtype": "fp32" if arguments.target == "host" else "fp16",
        "accumulator": "fp32",
        "tuning": json.loads(tuned.read_text()) if tuned.is_file() else None, "summary": summary(groups),
        "built": {name: asdict(each) for name, each in built.items()}, "groups": groups,
    }  # fmt: skip
    if arguments.out is not None:
        record.save(arguments.out, result)
    elif groups:
        print(record.write("fusion_choices", result))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
