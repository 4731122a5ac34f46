"""Models beside their variants, as data: what each costs and has, on one target. `workflows/exploring.py` finds it out,
`report/explore.py` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bolt_build.digest import encode
from bolt_build.planner.kernel_sources import KernelSource

EXPLORATION_VERSION = 2


@dataclass(frozen=True)
class Explored:
    """One model with one batch. `model` is what a command line calls it (RECIPE or RECIPE@VARIANT), `base` the recipe.

    `parameters` counts numbers in the weights as deployed, `steps` the kernels that a run launches, of which `chains`
    are two layers in one. `median_ms` is the median of `round_medians_ms`, or predicted where there are none. `cost` is
    the part of the base's images a second that the variant lacks, negative where it has more; None for the base itself
    and where the base has no time. `kernels` says where its kernels come from, None where that is no question or
    nothing was built; `verified` what verification said, None where it was not run.
    """

    model: str
    base: str
    precision: str
    batch: int
    threads: int | None
    onnx: str
    parameters: int
    steps: int
    chains: int
    median_ms: float
    round_medians_ms: tuple[float, ...]
    cost: float | None = None
    kernels: KernelSource | None = None
    verified: bool | None = None

    @property
    def images_per_second(self) -> float:
        return 1e3 * self.batch / self.median_ms

    @property
    def measured(self) -> bool:
        return bool(self.round_medians_ms)


@dataclass(frozen=True)
class NotExplored:
    """A model of which there is no time, and why."""

    model: str
    base: str
    reason: str


@dataclass(frozen=True)
class Exploration:
    """Everything found out for one target. `device` is what was measured on; where nothing was, it is empty and
    `predicted` says why."""

    version: int
    target: str
    device: str
    predicted: str | None
    rows: tuple[Explored, ...]
    failed: tuple[NotExplored, ...] = ()

    def of(self, base: str) -> Exploration:
        """What concerns one recipe."""
        return Exploration(
            self.version, self.target, self.device, self.predicted,
            tuple(row for row in self.rows if row.base == base), tuple(row for row in self.failed if row.base == base),
        )  # fmt: skip


def as_json(exploration: Exploration) -> dict[str, Any]:
    """JSON data, with images a second in every row."""
    data: dict[str, Any] = encode(exploration)
    for row, found in zip(data["rows"], exploration.rows, strict=True):
        row["images_per_second"] = found.images_per_second
    return data
