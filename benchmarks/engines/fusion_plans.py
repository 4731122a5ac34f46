"""The engines of `fusion_choices.py` as recipes, and what their plans say before anything is built."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.engines.fusion_models import BATCH, GROUPS, Model
from bolt_build.build.builder import BuildOptions
from bolt_build.digest import digest
from bolt_build.graph.onnx_import import load_model
from bolt_build.lockfile.reading import Lock, load_lock, lock_text
from bolt_build.planner.parameters import count_parameters
from bolt_build.report.explained.chains import ShownChain
from bolt_build.report.explained.explainer import explain
from bolt_build.schema.load import load_recipe
from bolt_build.workflows.evidence import gather

POLICIES = ("auto", "always", "never")
TOGETHER = "together"
PREDICTED = "predicted"
NOTABLE = 0.05
"""Pairs that are measured to be faster by this part of the time apart must be fused, or the reason told."""


@dataclass(frozen=True)
class Engine:
    """A model with what its recipe says of products in one kernel. `lock` is where its kernels come from: "together",
    what was tuned for all models; "recipe", the lock of the model's own recipe; "predicted", nowhere."""

    model: Model
    policy: str
    lock: str = TOGETHER

    @property
    def name(self) -> str:
        return f"{self.model.name}_{PREDICTED if self.lock == PREDICTED else self.policy}"


def engines_of(group: str) -> Iterator[Engine]:
    """What is to be timed of a group. Activations are compared with kernels chosen by prediction, the same tiles in all
    of them, so that none is better tuned than another."""
    for model in GROUPS[group]:
        if group == "activations":
            yield Engine(model, "auto", PREDICTED)
            continue
        lock = "recipe" if model.name == "vgg16" else TOGETHER  # no pair is legal there, and it is half of all weights
        yield from (Engine(model, policy, lock) for policy in (POLICIES if model.policies else ("auto",)))


def write_recipe(engine: Engine, folder: Path, target: str, batch: int) -> Path:
    """`folder`/<engine>.yaml, beside which `models` has its model."""
    lock = None
    if engine.lock == TOGETHER:
        lock = f"{TOGETHER}.winners.lock"
    elif engine.lock == "recipe":
        lock = f"{engine.model.recipe}.lock"
        if (ROOT / "recipes" / lock).is_file():
            shutil.copy(ROOT / "recipes" / lock, folder / lock)
    path = folder / f"{engine.name}.yaml"
    precision = "fp32" if target == "host" else "fp16"
    path.write_text(
        f"bolt: 1\nname: {engine.name}\nmodel: {{onnx: models/{engine.model.name}.onnx, batch: {batch}}}\n"
        f"targets: {{{target}: {{precision: {precision}}}}}\n"
        f"policy: {{fusion: {{persistent: {engine.policy}}}}}\n"
        f"tuning: {{lock: {lock or 'null'}}}\nverify: {{samples: 1}}\n"
    )
    return path


def without_engines(lock: Path, to: Path) -> None:
    """The lock with each problem's winner and nothing of whole engines, whose plans its covers may be."""
    targets = tuple(replace(target, engines=(), covers=()) for target in load_lock(lock).targets)
    to.write_text(lock_text(Lock(targets)))


def write_tuning_recipe(folder: Path, target: str, candidates: int) -> Path:
    """The recipe by which all models are tuned at once."""
    path = folder / f"{TOGETHER}.yaml"
    path.write_text(
        f"bolt: 1\nname: {TOGETHER}\nmodel: {{onnx: {TOGETHER}.onnx, batch: {BATCH}}}\n"
        f"targets: {{{target}: {{precision: fp16}}}}\n"
        f"tuning: {{lock: {TOGETHER}.lock, candidates: {candidates}, engine: false}}\n"
    )
    return path


@dataclass(frozen=True)
class Planned:
    """An engine's plan: `key` is equal for engines that launch the same kernels in the same places. Of its
    `kernels` so many were `measured`, the others are predicted. `pairs` has each pair of products that one kernel could
    compute, `illegal` how many others follow each other, by the reason why none can."""

    engine: str
    key: str
    source: str
    fused: int
    measured: int
    kernels: int
    parameters: int
    pairs: tuple[dict[str, Any], ...]
    illegal: tuple[tuple[str, int], ...]


def plan(recipe_path: Path, output: Path, cache: Path | None) -> Planned:
    """Raises BoltError."""
    recipe = load_recipe(recipe_path)
    (spec,) = recipe.targets
    evidence = gather(recipe, spec, BuildOptions(output=output, cache=cache), lambda text: None)
    (batch,) = explain(evidence).batches
    found = batch.chains
    assert recipe.model.onnx is not None
    graph = load_model(Path(recipe.model.onnx)).bind(recipe.model.batch[0], recipe.model.dims)
    legal = found.legal if found is not None else ()
    used = evidence.engine.used
    return Planned(
        recipe.name, digest(evidence.engine.plan.plans), evidence.source, sum(each.fused for each in legal),
        sum(each.measured for each in used), len(used), count_parameters(graph, recipe.policy),
        tuple(_pair(each) for each in legal),
        tuple((each.reason, each.count) for each in found.illegal) if found is not None else (),
    )  # fmt: skip


def plan_all(paths: Sequence[Path], output: Path, cache: Path | None, jobs: int) -> dict[str, Planned]:
    """By the engine's name, several planned at a time."""
    with ProcessPoolExecutor(max(1, min(jobs, len(paths)))) as pool:
        found = pool.map(plan, paths, [output] * len(paths), [cache] * len(paths))
        return {each.engine: each for each in found}


def _pair(found: ShownChain) -> dict[str, Any]:
    apart = None if any(time is None for time in found.apart) else sum(time for time in found.apart if time is not None)
    gain = None if apart is None else 1 - found.together / apart
    measured = all(found.measured)
    return {
        "nodes": found.nodes, "what": found.words, "fused": found.fused, "one_kernel_us": found.together,
        "apart_us": found.apart, "measured": measured, "gain": gain,
        "notable": measured and gain is not None and gain >= NOTABLE,
        "split_us": None if found.split is None else asdict(found.split), "reason": found.reason,
    }  # fmt: skip
