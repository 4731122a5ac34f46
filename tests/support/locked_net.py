"""A recipe with a model and a lock, planned as a build does. Nothing is compiled, and no GPU is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tuning_evidence import H200, ok

from bolt_build.build.builder import BuildOptions
from bolt_build.build.planning.engine_file import ENGINE, read_engine
from bolt_build.build.planning.engine_from_model import parse
from bolt_build.build.planning.prepared_target import PreparedTarget
from bolt_build.build.planning.preparing import Preparer
from bolt_build.build.planning.provenance_file import PROVENANCE
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Device, Fingerprint, TuningTools
from bolt_build.lockfile.reading import Lock, LockedEngine, LockedTarget, lock_text
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
from bolt_build.toolchain import Tool, Toolchain
from bolt_build.tuning.choice.lock_part import lock_from
from bolt_build.tuning.choice.winners import select
from bolt_build.tuning.trials.tuning_set import TuningSet, tuning_set

RECIPE = """\
bolt: 1
model: {onnx: net.onnx, batch: [1, 4]}
targets: {h200: {precision: fp16}}
tuning: {lock: net.lock.yaml}
"""
TUNE = "bolt-build tune net.yaml --target h200"
TOOLS = Toolchain(
    (
        Tool("cxx", "/usr/bin/g++", "12", "c"),
        Tool("nvcc", "/cuda/bin/nvcc", "13.0.88", "n", ("/cuda/include",), ("/cuda/lib",)),
        Tool("cutlass", "/cutlass/include", "4.2.0.0", "u", ("/cutlass/include",)),
    )
)
FLAGS = " ".join(target_named("h200").compile_flags)
HERE = TuningTools("13.0.88", "4.2.0.0", FLAGS, "f00d" * 16)


def write_model(path: Path, channels: int = 16) -> None:
    """Two 3x3 convolutions with ReLU and a third of its own size."""
    sizes = ((channels, channels), (channels, channels), (2 * channels, channels))
    weights = [
        numpy_helper.from_array(np.full((k, c, 3, 3), 0.1, np.float32), f"w{index}")
        for index, (k, c) in enumerate(sizes)
    ]  # fmt: skip
    nodes = []
    for index in range(len(sizes)):
        source = f"r{index - 1}" if index else "x"
        nodes.append(helper.make_node("Conv", [source, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, 14, 14])]
    outputs = [helper.make_tensor_value_info("r2", TensorProto.FLOAT, ["N", 2 * channels, 14, 14])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@dataclass
class Net:
    """A recipe with a model, in the current directory."""

    tools: Toolchain = TOOLS
    said: list[str] = field(default_factory=list)

    def planner(self, **more: bool) -> Preparer:
        recipe = load_recipe(Path("net.yaml"))
        directory = BuildOptions().directory(recipe)
        return Preparer(recipe, directory, self.said.append, self._probe, lambda target: "no GPU here", **more)

    def _probe(self, names: Sequence[str]) -> Toolchain:
        return self.tools

    def plan(self, **more: bool) -> PreparedTarget:
        """Plan as a build does, and leave the plan where the next one finds it."""
        planner = self.planner(**more)
        planned = planner.plan(planner.recipe.targets[0])
        planned.written()
        return planned

    def refused(self) -> tuple[Diagnostic, ...]:
        with pytest.raises(BoltError) as raised:
            self.plan(locked=True)
        assert raised.value.exit_code is ExitCode.LOCK
        return raised.value.diagnostics

    def problems(self) -> TuningSet:
        planner = self.planner()
        recipe, spec, target = planner.recipe, planner.recipe.targets[0], target_named("h200")
        graphs = [parse(planner.model.path).bind(batch, recipe.model.dims) for batch in recipe.model.batch]
        spaces = search_spaces(graphs, recipe, spec, target, load(target))
        return tuning_set(spaces, load(target), target, 3)

    def tuned(
        self, fastest: int = 1, device: Device = H200, tools: TuningTools = HERE, without: Callable[[str], bool] = bool
    ) -> LockedTarget:
        """A lock's part in which the candidate in this place of the prediction is the fastest, but for problems that
        occur `without` a measurement."""
        found = self.problems()
        records = [
            (Fingerprint(device, tools), ok(each.problem.digest, trial.candidate, 5.0 if index == fastest else 7.5))
            for each in found.problems
            if without is bool or not any(map(without, each.occurs))
            for index, trial in enumerate(each.trials)
        ]
        planner, target = self.planner(), target_named("h200")
        model = planner.recipe.model
        graphs = [parse(planner.model.path).bind(batch, model.dims) for batch in model.batch]
        engine = plan_engine(
            graphs, planner.recipe, planner.recipe.targets[0], target, load(target), select(found, records)
        )
        return lock_from(found, records, engine.covers)

    def lock(self, *parts: LockedTarget) -> None:
        Path("net.lock.yaml").write_text(lock_text(Lock(parts)))

    def kernels(self, planned: PreparedTarget) -> list[str]:
        plan = written_plan(planned)
        return [f"{step.name}: {step.candidate}" for step in plan.plans[0].steps if step.candidate.family == "cutlass"]


def written_plan(planned: PreparedTarget) -> EnginePlan:
    """The engine plan of a planned target: what its sources were emitted from."""
    return read_engine(_written(planned, ENGINE))


def carried_manifest(planned: PreparedTarget) -> Any:
    """The manifest that the engine of a planned target carries."""
    return json.loads(_written(planned, PROVENANCE))


def _written(planned: PreparedTarget, name: str) -> str:
    texts = dict(planned.contents)
    return texts[name] if name in texts else (planned.directory.path / name).read_text()


def new_net() -> Net:
    """In the current directory."""
    Path("net.yaml").write_text(RECIPE)
    write_model(Path("net.onnx"))
    return Net()


def codes(found: Sequence[Diagnostic]) -> list[str]:
    return [each.code for each in found]


def whole_engine(part: LockedTarget, *swaps: tuple[str, Candidate, float]) -> LockedTarget:
    """The lock's part with swaps in the engine of batch 1."""
    (cover,) = [cover for cover in part.covers if cover.batch == 1]
    name = part.fingerprints[0][0]
    return replace(part, engines=(LockedEngine(1, cover.graph, "e" * 64, 50.0, 45.0, 0.1, 3, swaps, name),))
