"""What verification found: frozen, and JSON through `digest.encode`."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.errors import Diagnostic

REPORT_VERSION = 1


@dataclass(frozen=True)
class LayerReport:
    """One ONNX tensor that a step of the plan made, against the reference.

    `error` and `rms` are those of `verify.compare.Difference`, with their limits `tolerance` and `rms_tolerance`;
    `depth` is the number of layers on the longest way from an input, `amplification` what the model makes there of a
    relative change of its input. `inputs_error` says how much of their own
    tolerance the tensors it was made from had used up (above 1: they departed), None where none was observed.
    `reference_shape` is what the model has there; where it differs, nothing was compared.
    """

    step: int
    name: str
    tensor: str
    kernel: str
    shape: tuple[int, ...]
    reference_shape: tuple[int, ...]
    precision: str
    depth: int
    amplification: float
    max_abs: float
    error: float
    tolerance: float
    rms: float
    rms_tolerance: float
    not_finite: int
    reference_not_finite: int
    inputs_error: float | None
    ok: bool

    @property
    def used(self) -> float:
        """The part of its tolerance that the layer uses; above 1 it departs."""
        return max(self.error / self.tolerance, self.rms / self.rms_tolerance)


@dataclass(frozen=True)
class OutputReport:
    """One output over all samples of a batch: largest errors, least cosines.

    `cosine_centred` is taken after removing the reference's mean over the batch (for batch 1 over the samples), None
    for a single row. `dependence` is the cosine between the reference's outputs of different inputs, None likewise.
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
    not_finite: int
    reference_not_finite: int
    ok: bool


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

    @property
    def first_departure(self) -> LayerReport | None:
        """The first layer in execution order that departs from the reference."""
        return next((layer for layer in self.layers if not layer.ok), None)

    @property
    def worst_layer(self) -> LayerReport | None:
        """The layer that uses up most of its tolerance."""
        return max(self.layers, key=lambda layer: layer.used, default=None)


@dataclass(frozen=True)
class VerifyReport:
    """A whole verification. `problems` are the reasons of a failure, and warnings about what the check is worth."""

    version: int
    name: str
    target: str
    precision: str
    against: str
    seed: int
    ok: bool
    batches: tuple[BatchReport, ...]
    problems: tuple[Diagnostic, ...]
