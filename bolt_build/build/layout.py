"""Where things stand under `generated/`: one directory a recipe, one a target in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TUNING = ".tuning"
"""What a target's name is followed by in the name of the directory where it is tuned."""


@dataclass(frozen=True)
class TargetDirectory:
    """`generated/<recipe>/<target>/`. Results lie at its top, sources in `src/`, the rest in `build/`."""

    path: Path

    @property
    def plan(self) -> Path:
        """The task graph with what it was made from; see `plan_file`."""
        return self.path / "plan.json"

    @property
    def engine(self) -> Path:
        """The EnginePlan that emission reads."""
        return self.path / "engine.json"

    @property
    def recipe(self) -> Path:
        """The recipe as it was planned."""
        return self.path / "recipe.json"

    @property
    def verification(self) -> Path:
        return self.path / "verify.json"

    @property
    def logs(self) -> Path:
        """Output of every task, `<task>.log`."""
        return self.path / "build" / "logs"

    @property
    def reasons(self) -> Path:
        """Why each task ran last."""
        return self.logs / "reasons.json"

    @property
    def receipts(self) -> Path:
        """What each finished task was made from, `<task>.json`."""
        return self.path / "build" / "records"

    @property
    def temporary(self) -> Path:
        """Private directories of running tasks."""
        return self.path / "build" / "tmp"


@dataclass(frozen=True)
class TuningDirectory(TargetDirectory):
    """`generated/<recipe>/<target>.tuning/`: laid out as a target's, `run` and `candidates.so` on top."""

    @property
    def bundle(self) -> Path:
        """What `candidates.so` holds to be measured."""
        return self.path / "bundle.json"

    @property
    def results(self) -> Path:
        """What the last measurement here found."""
        return self.path / "results.jsonl"

    @property
    def engines(self) -> Path:
        """The engines to play with what `candidates.so` holds."""
        return self.path / "engines.tsv"

    @property
    def engine_results(self) -> Path:
        """What the last measurement of engines here found."""
        return self.path / "engines.jsonl"


@dataclass(frozen=True)
class RecipeDirectory:
    """`generated/<recipe>/`."""

    path: Path

    def target(self, name: str) -> TargetDirectory:
        return TargetDirectory(self.path / name)

    def tuning(self, target: str) -> TuningDirectory:
        """Where a target's candidates are compiled, and what measures them lies."""
        return TuningDirectory(self.path / f"{target}{TUNING}")

    @property
    def zoo_model(self) -> Path:
        """The ONNX file of a zoo recipe."""
        return self.path / "model.onnx"

    @property
    def zoo_stamp(self) -> Path:
        return self.path / "model.json"

    @property
    def exploration(self) -> Path:
        """What the last `bolt-build explore` of the recipe found."""
        return self.path / "explore.json"

    @property
    def signatures(self) -> Path:
        """SCons's signature file, as SCons is told: it adds a suffix."""
        return self.path / ".sconsign"

    @property
    def signature_file(self) -> Path:
        return self.path / ".sconsign.dblite"

    @property
    def targets(self) -> tuple[TargetDirectory, ...]:
        """Directories of targets that were planned here, by name."""
        found = (p.parent.name for p in sorted(self.path.glob("*/plan.json")))
        return tuple(
            self.tuning(name.removesuffix(TUNING)) if name.endswith(TUNING) else self.target(name) for name in found
        )
