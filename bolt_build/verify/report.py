"""What verification found: frozen, and JSON through `digest.encode`."""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.errors import Diagnostic
from bolt_build.sizes import Dims
from bolt_build.verify.judgement import SPREAD

REPORT_VERSION = 2
SEEDED = "seeded"
"""What `VerifyReport.inputs` says of seeded random inputs."""


@dataclass(frozen=True)
class LayerReport:
    """One ONNX tensor that a step of the plan made, against what the model makes of the engine's own inputs of it.

    `largest` (of `limit`) and `spread` are the largest deviation and their root mean square, in standard deviations of
    what rounding does to the layer (`verify.judgement`); `noise` is that standard deviation, `signal` the reference's
    root mean square, and `max_abs` the largest difference. `error` is `max_abs` over `signal`; where the recipe sets
    `tolerance`, that is all that counts. `tells` is False where rounding alone could make a tensor as large as the
    reference's.
    `reference_shape` is what the model has there; where it differs, nothing was compared.
    """

    step: int
    name: str
    tensor: str
    kernel: str
    shape: tuple[int, ...]
    reference_shape: tuple[int, ...]
    precision: str
    max_abs: float
    signal: float
    noise: float
    largest: float
    limit: float
    spread: float
    error: float
    tolerance: float | None
    not_finite: int
    reference_not_finite: int
    tells: bool
    ok: bool

    @property
    def blind(self) -> bool:
        """True where nothing judges the layer: what is the reference, element by element, needs no judgement."""
        return self.ok and not self.tells and self.tolerance is None and self.max_abs > 0.0

    @property
    def used(self) -> float:
        """The part of its limits that the layer uses; above 1 it departs."""
        if self.tolerance is not None:
            return self.error / self.tolerance
        return max(self.largest / self.limit, self.spread / SPREAD)


@dataclass(frozen=True)
class OutputReport:
    """One output over all samples of a batch: largest errors, least cosines.

    `cosine_centred` is taken after removing the reference's mean over the batch (for batch 1 over the samples), None
    for a single row. `dependence` is the cosine between the reference's outputs of different inputs, None likewise.
    `amplification` is the most that the model makes, in any sample, of a relative change of its inputs, and
    `of_elements` the most that it makes of any element; of whole numbers, `changed` is the part that such a change
    makes others. `tells` is False where that lets roundings grow as large as the output. `allowed` is the recipe's
    tolerance: where it is set, `error` is `max_abs` over the reference's root mean square, and all that counts.
    """

    name: str
    max_abs: float
    error: float
    tolerance: float
    rms: float
    rms_tolerance: float
    cosine: float
    cosine_centred: float | None
    dependence: float | None
    amplification: float
    allowed: float | None
    not_finite: int
    reference_not_finite: int
    tells: bool
    ok: bool
    of_elements: float = 0.0
    changed: float = field(default=0.0, metadata=UNSAID)


@dataclass(frozen=True)
class BatchReport:
    """One batch: its outputs over all samples, and each observed layer for sample `layers_sample`.

    `repeatable` says that an observed run gave the same bits as a plain one.
    """

    batch: int
    samples: int
    outputs: tuple[OutputReport, ...]
    layers_sample: int
    layers: tuple[LayerReport, ...]
    repeatable: bool
    ok: bool
    dims: Dims = field(default=(), metadata=UNSAID)

    @property
    def first_departure(self) -> LayerReport | None:
        """The first layer in execution order that departs."""
        return next((layer for layer in self.layers if not layer.ok), None)

    @property
    def blind(self) -> tuple[LayerReport, ...]:
        """Layers that could not be judged."""
        return tuple(layer for layer in self.layers if layer.blind)

    @property
    def worst_layer(self) -> LayerReport | None:
        """The layer that uses up most of its tolerance."""
        return max(self.layers, key=lambda layer: layer.used, default=None)


@dataclass(frozen=True)
class VerifyReport:
    """A whole verification. `problems` are the reasons of a failure, and warnings about what the check is worth.

    `inputs` is "seeded" or the file that the recipe names, `tolerance` what it allows everywhere, None where roundings
    judge.
    """

    version: int
    name: str
    target: str
    precision: str
    against: str
    seed: int
    inputs: str
    tolerance: float | None
    ok: bool
    batches: tuple[BatchReport, ...]
    problems: tuple[Diagnostic, ...]
