"""Verifies a built engine against the model that it was built from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.samples import sample
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.runtime.loader import Engine, EngineError
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.layers import Runnable, compare_layers, unseen
from bolt_build.verify.outputs import OutputLimits, compare_output
from bolt_build.verify.reference import Reference
from bolt_build.verify.report import REPORT_VERSION, BatchReport, LayerReport, OutputReport, VerifyReport
from bolt_build.verify.sensitivity import amplification
from bolt_build.verify.taps import Tap, taps_of
from bolt_build.verify.tolerance import DEPENDENCE, coarser

Arrays = Mapping[str, Array]


class RunnableModel(Protocol):
    """What verification needs of a `runtime.loader.Model`."""

    def context(self, batch: int) -> AbstractContextManager[Runnable]: ...


def verify_engine(
    library: Path,
    weights: Path,
    onnx: Path,
    plan: EnginePlan,
    spec: VerifySpec,
    dims: tuple[tuple[str, int], ...],
) -> VerifyReport:
    """Runs every batch of the engine on seeded random inputs, and compares outputs and layers with onnxruntime.

    A wrong engine is a report with `ok` false. Raises BoltError where nothing can be compared: onnxruntime is missing
    (exit code 7) or refuses the model, the engine does not load or run, or is not that of `plan`.
    """
    reference = Reference(onnx, dims)
    try:
        engine = Engine(library)
    except (OSError, ValueError) as error:
        raise _failure("engine-failed", f"the engine does not load: {error}", library) from error
    if engine.layout_digest != plan.layout_digest:
        raise _failure("stale-engine", f"{library} was built from another plan than the one to verify", library)
    try:
        with engine.create(weights) as model:
            return verify_model(model, reference, plan, spec)
    except EngineError as error:
        raise _failure("engine-failed", f"the engine does not run: {error}", library) from error


def verify_model(model: RunnableModel, reference: Reference, plan: EnginePlan, spec: VerifySpec) -> VerifyReport:
    """The same for a loaded model."""
    batches: list[BatchReport] = []
    problems: list[Diagnostic] = []
    reference.observe(tap.tensor for batch_plan in plan.plans for tap in taps_of(batch_plan))
    smallest = min(plan.plans, key=lambda batch_plan: batch_plan.batch)
    growth = amplification(reference, taps_of(smallest), _inputs(smallest, spec.seed, 0)[1], spec.seed)
    for batch_plan in plan.plans:
        with model.context(batch_plan.batch) as context:
            report, found = _verify_batch(context, reference, batch_plan, spec, growth)
        batches.append(report)
        problems += found
    ok = all(batch.ok for batch in batches)
    return VerifyReport(
        REPORT_VERSION, plan.name, plan.target, plan.precision, reference.version, spec.seed, ok,
        tuple(batches), tuple(problems),
    )  # fmt: skip


def _verify_batch(
    context: Runnable, reference: Reference, plan: BatchPlan, spec: VerifySpec, growth: Mapping[str, float]
) -> tuple[BatchReport, list[Diagnostic]]:
    taps = taps_of(plan)
    inputs, feeds = _inputs(plan, spec.seed, 0)
    results = [context.run(inputs)]
    seen = compare_layers(context, reference, taps, inputs, feeds, growth)
    expected = [seen.expected]
    for number in range(1, spec.samples):
        inputs, feeds = _inputs(plan, spec.seed, number)
        results.append(context.run(inputs))
        expected.append(reference.outputs(feeds))
    outputs, problems = _compare_outputs(plan, taps, growth, results, expected)
    # Layers of the first sample, or of the first that went wrong.
    number = 0
    if not all(output.ok for output in outputs):
        each = (_compare_outputs(plan, taps, growth, [r], [e])[0] for r, e in zip(results, expected, strict=True))
        number = next((k for k, reports in enumerate(each) if not all(report.ok for report in reports)), 0)
    if number:
        seen = compare_layers(context, reference, taps, *_inputs(plan, spec.seed, number), growth)
    layers = seen.layers
    repeatable = all(_same_bits(results[number][name], seen.outputs[name]) for name in seen.outputs)
    problems = [*_layer_problems(plan.batch, taps, layers), *problems]
    if not repeatable:
        message = f"batch {plan.batch}: an observed run gives other bits than a plain one"
        problems.append(Diagnostic("run-differs", message))
    ok = not any(problem.severity == "error" for problem in problems)
    return BatchReport(plan.batch, spec.samples, tuple(outputs), number, layers, repeatable, ok), problems


def _inputs(plan: BatchPlan, seed: int, number: int) -> tuple[Arrays, Arrays]:
    """Inputs of sample `number` in the engine's element types, and the same values for the reference."""
    inputs: dict[str, Array] = {}
    for index, port in enumerate(plan.inputs):
        kind = port.operand.type
        if kind.dtype.is_float:
            array: Array = sample(kind.shape, seed, plan.batch, number, index)
        else:
            array = np.random.RandomState([seed, plan.batch, number, index]).randint(0, 2, kind.shape)
        inputs[port.name] = array.astype(numpy_dtype(kind.dtype))
    return inputs, {name: _widened(array) for name, array in inputs.items()}


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _compare_outputs(
    plan: BatchPlan,
    taps: tuple[Tap, ...],
    growth: Mapping[str, float],
    results: list[dict[str, Array]],
    expected: list[dict[str, Array]],
) -> tuple[list[OutputReport], list[Diagnostic]]:
    reports: list[OutputReport] = []
    problems: list[Diagnostic] = []
    for port in plan.outputs:
        name = port.name
        limits = _limits(name, port.operand.type.dtype, taps, growth)
        pair = ([r[name] for r in results], [e[name] for e in expected])
        report, reasons = compare_output(name, plan.batch, limits, *pair)
        reports.append(report)
        subject = f"batch {plan.batch}, output '{name}'"
        if reasons:
            problems.append(Diagnostic("output-departs", f"{subject}: {'; '.join(reasons)}"))
        elif report.dependence is not None and report.dependence > DEPENDENCE:
            message = (
                f"{subject}: outputs hardly depend on the input (cosine {report.dependence:.4f} between different"
                " inputs), so that they say little; the layers were compared one by one"
            )
            hint = "give the model trained or calibrated weights"
            problems.append(Diagnostic("weak-check", message, hint=hint, severity="warning"))
    return reports, problems


def _limits(name: str, stored: DType, taps: tuple[Tap, ...], growth: Mapping[str, float]) -> OutputLimits:
    """Those of the step that makes the output; of the deepest and coarsest step where no tensor has its name."""
    found = [tap for tap in taps if tap.tensor == name] or list(taps)
    coarsest = stored if stored.is_float else DType.F32
    for tap in found:
        coarsest = coarser(coarsest, tap.coarsest)
    most = max((growth.get(tap.tensor, 1.0) for tap in found), default=1.0)
    return OutputLimits(max((tap.depth for tap in found), default=1), most, coarsest)


def _layer_problems(batch: int, taps: tuple[Tap, ...], layers: tuple[LayerReport, ...]) -> list[Diagnostic]:
    problems = []
    first = next((layer for layer in layers if not layer.ok), None)
    if first is not None:
        problems.append(Diagnostic("layer-departs", f"batch {batch}: {departure(first)}", subject=first.name))
    for tap in unseen(taps, layers):
        message = (
            f"batch {batch}: step {tap.step} ('{tap.name}') should leave tensor '{tap.tensor}', "
            "which was not seen in the engine or is none of the model"
        )
        problems.append(Diagnostic("layer-unseen", message, subject=tap.name))
    return problems


def departure(layer: LayerReport) -> str:
    """A sentence about the first layer that departs: what, by how much, and whether the fault is its own."""
    head = (
        f"'{layer.name}' is the first layer that departs (step {layer.step}, {layer.kernel}, "
        f"tensor '{layer.tensor}' {list(layer.shape)}): "
    )
    if layer.shape != layer.reference_shape:
        return head + f"the model has {list(layer.reference_shape)} there"
    if layer.reference_not_finite:
        return head + f"the model itself makes {layer.reference_not_finite} elements NaN or infinite"
    if layer.not_finite:
        what = f"{layer.not_finite} elements are NaN or infinite"
    elif layer.error > layer.tolerance:
        what = f"largest error {layer.error:.2g}, tolerance {layer.tolerance:.2g}"
    else:
        what = f"rms error {layer.rms:.2g}, tolerance {layer.rms_tolerance:.2g}"
    return f"{head}{what}; {_blame(layer.inputs_error)}"


def _blame(inputs_error: float | None) -> str:
    if inputs_error is None:
        return "none of its inputs could be compared"
    if inputs_error > 1:
        return "its inputs had departed already"
    share = f"{100 * inputs_error:.0f}% of their tolerance"
    if inputs_error > 0.5:
        return f"its inputs had used {share}: errors were growing before it"
    return f"its inputs were right ({share} used): the fault is in this layer"


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _failure(code: str, message: str, library: Path) -> BoltError:
    return BoltError([Diagnostic(code, message, subject=str(library))], ExitCode.VERIFY_FAILED)
