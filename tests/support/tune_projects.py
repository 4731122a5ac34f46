"""A stranger's directory with a recipe to tune, and results as the driver of a bundle would have written them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tune_sets import TOOLS

from bolt_build.build.builder import BuildOptions
from bolt_build.build.files import write_text
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.lockfile.fingerprint import Device
from bolt_build.report.progress import QuietProgress
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.tuning.agenda import Agenda, agenda_of
from bolt_build.tuning.exchange.bundle import BUNDLE_VERSION, Bundle, bundle_text
from bolt_build.tuning.exchange.results import RESULTS_VERSION, Results, Row, results_text
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.run import TuneOptions, tune
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial

A100 = Device("NVIDIA A100-SXM4-80GB", 108, 80 << 30, 400, "570.86.10")
H200 = Device("NVIDIA H200", 132, 140 << 30, 700, "570.86.10")
RECIPE = """\
bolt: 1
name: tiny
model: {onnx: tiny.onnx, batch: [1]}
targets: {a100: {precision: fp16}}
tuning: {candidates: 3, lock: tiny.lock}
"""

Medians = Callable[[ProblemTrials, Trial], float | Status]


def write_model(path: Path, channels: int = 16) -> None:
    """A convolution with ReLU."""
    random = np.random.RandomState(0)

    def constant(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((random.randn(*shape) * 0.1).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes, "tiny", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32, 16, 16])],
        [constant("w", 32, channels, 3, 3), constant("b", 32)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@dataclass(frozen=True)
class Project:
    """A recipe in a directory, with a cache and an output directory of its own."""

    path: Path

    @property
    def recipe(self) -> Recipe:
        return checked_recipe(self.path / "tiny.yaml")

    @property
    def lock(self) -> Path:
        return self.path / "tiny.lock"

    @property
    def build(self) -> BuildOptions:
        return BuildOptions(self.path / "generated", self.path / "cache", targets=("a100",))

    def write(self, *changes: tuple[str, str]) -> None:
        """Write the recipe with some of its text replaced."""
        text = RECIPE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.path / "tiny.yaml").write_text(text)

    def plan(self, limit: int | None = None) -> Agenda:
        recipe = self.recipe
        directory = self.build.directory(recipe)
        return agenda_of(recipe, recipe.targets[0], target_named("a100"), directory, lambda text: None, limit)

    def bundle(self, name: str = "tiny", not_compiled: tuple[Record, ...] = ()) -> Bundle:
        """What an export would have packed."""
        return Bundle(BUNDLE_VERSION, name, "a100", TOOLS, self.plan().problems.problems, not_compiled, ())

    def remember(self, bundle: Bundle) -> None:
        """As an export would have."""
        folder = self.path / "cache" / "tuning" / "bundles"
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{bundle.id}.json", bundle_text(bundle))

    def results(self, bundle: Bundle, medians: Medians, device: Device = A100, *, complete: bool = True) -> Path:
        """Write `results.jsonl`: of each trial the microseconds that it took, or how it failed."""
        rows = tuple(_row(p, t, medians(p, t)) for p in bundle.problems for t in p.trials)
        found = Results(
            RESULTS_VERSION, bundle.id, bundle.target, (device,), rows, (), complete, 1.0 if complete else None
        )
        path = self.path / "results.jsonl"
        path.write_text(results_text(found))
        return path

    def tune(self, **options: object) -> TuneResult:
        base = TuneOptions(self.build)
        return tune(self.recipe, replace(base, **options), QuietProgress())  # type: ignore[arg-type]

    def imported(self, medians: Medians, device: Device = A100) -> TuneResult:
        """Export and measurement by hand, then the import of its results."""
        bundle = self.bundle()
        self.remember(bundle)
        return self.tune(results=self.results(bundle, medians, device))


def new_project(path: Path) -> Project:
    path.mkdir(parents=True, exist_ok=True)
    write_model(path / "tiny.onnx")
    project = Project(path)
    project.write()
    return project


def by_prediction(problem: ProblemTrials, trial: Trial) -> float:
    """What is predicted fastest is."""
    return 1e6 * trial.predicted


def last_first(problem: ProblemTrials, trial: Trial) -> float:
    """The trials of the first stage in the opposite order of what is predicted; variants do not help."""
    first = [each.candidate for each in problem.trials if each.of is None]
    return 50.0 - 5.0 * first.index(trial.candidate) if trial.of is None else 90.0


def _row(problem: ProblemTrials, trial: Trial, found: float | Status) -> Row:
    if isinstance(found, Status):
        return Row(problem.problem.digest, trial.candidate.digest, 0, found, "why")
    times = Statistics(found, found, found, 0.0, 10, 20)
    return Row(problem.problem.digest, trial.candidate.digest, 0, Status.OK, "", times, 0.1)
