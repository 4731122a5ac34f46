"""Verifies a built engine against the model that it was built from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.runtime.loader import Engine, EngineError
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.layers import Runnable, compare_layers
from bolt_build.verify.outputs import coarsest_of, compare_outputs
from bolt_build.verify.padded import with_padding
from bolt_build.verify.problems import layer_problems, told_by_layers
from bolt_build.verify.reference import Reference, widened
from bolt_build.verify.report import REPORT_VERSION, BatchReport, VerifyReport
from bolt_build.verify.samples import Samples
from bolt_build.verify.sensitivity import Growth, Share, amplification, tried
from bolt_build.verify.taps import taps_of
from bolt_build.verify.tolerance import BY_ROUNDING, Tolerances


class RunnableModel(Protocol):
    """What verification needs of a `runtime.loader.Model`."""

    def context(self, batch: int, *, dims: Mapping[str, int]) -> AbstractContextManager[Runnable]: ...


def verify_engine(
    library: Path,
    weights: Path,
    onnx: Path,
    plan: EnginePlan,
    spec: VerifySpec,
    dims: tuple[tuple[str, int], ...],
    tolerances: Tolerances = BY_ROUNDING,
) -> VerifyReport:
    """Runs every batch of the engine on the recipe's or on seeded inputs, and compares outputs with onnxruntime and
    layers with what the model makes of the engine's own inputs of them.

    A wrong engine is a report with `ok` false. Raises BoltError where nothing can be compared: onnxruntime is missing
    (exit code 7) or refuses the model, inputs do not fit, the engine does not load or run, or is not that of `plan`.
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
            report = verify_model(model, reference, plan, spec, tolerances)
            return with_padding(model, reference, plan, Samples(spec), tolerances, report)
    except EngineError as error:
        raise _failure("engine-failed", f"the engine does not run: {error}", library) from error


def verify_model(
    model: RunnableModel, reference: Reference, plan: EnginePlan, spec: VerifySpec, tolerances: Tolerances = BY_ROUNDING
) -> VerifyReport:
    """The same for a loaded model."""
    batches: list[BatchReport] = []
    problems: list[Diagnostic] = []
    samples = Samples(spec)
    largest = max(batch_plan.batch for batch_plan in plan.plans)
    for batch_plan in plan.plans:
        with model.context(batch_plan.batch, dims=dict(batch_plan.dims)) as context:
            report, found = _verify_batch(context, reference, batch_plan, samples, tolerances, largest)
        batches.append(report)
        problems += found
    ok = all(batch.ok for batch in batches)
    return VerifyReport(
        REPORT_VERSION, plan.name, plan.target, plan.precision, reference.version, spec.seed, samples.origin,
        tolerances.overall, ok, tuple(batches), tuple(problems),
    )  # fmt: skip


def _verify_batch(
    context: Runnable, reference: Reference, plan: BatchPlan, samples: Samples, tolerances: Tolerances, largest: int
) -> tuple[BatchReport, list[Diagnostic]]:
    results, expected, growth = _run_samples(context, reference, plan, samples)
    judged = compare_outputs(plan, tolerances, growth, results, expected)
    # Layers of the first sample, or of the first whose outputs went wrong.
    number = next((k for k, wrong in enumerate(judged.wrong_samples) if wrong), 0)
    seen = compare_layers(context, reference, plan, samples.inputs(plan, number), tolerances, largest)
    if any(judged.wrong_samples) and all(layer.ok for layer in seen.layers):
        # What is decided by rounding may not show in a single change of the input: no effort is spared.
        feeds = [_widened(samples.inputs(plan, each)) for each in range(len(expected))]
        found = tried(reference, plan, feeds, expected, coarsest_of(plan), samples.seed)
        growth = {name: each.most(found.get(name, Growth())) for name, each in growth.items()}
        judged = compare_outputs(plan, tolerances, growth, results, expected)
    repeatable = all(_same_bits(results[number][name], seen.outputs[name]) for name in seen.outputs)
    problems = [*layer_problems(plan.sizes, taps_of(plan), seen.layers), *judged.problems]
    problems += told_by_layers(plan.sizes, judged.outputs, seen.layers)
    if not repeatable:
        message = f"{plan.sizes}: an observed run gives other bits than a plain one"
        problems.append(Diagnostic("run-differs", message))
    ok = not any(problem.severity == "error" for problem in problems)
    report = BatchReport(plan.batch, len(results), judged.outputs, number, seen.layers, repeatable, ok, plan.dims)
    return report, problems


def _run_samples(
    context: Runnable, reference: Reference, plan: BatchPlan, samples: Samples
) -> tuple[list[dict[str, Array]], list[dict[str, Array]], dict[str, Growth]]:
    """Each sample's outputs from the engine and from the reference, and the most by which any of them amplifies."""
    coarsest = coarsest_of(plan)
    results, expected = [], []
    growth: dict[str, Growth] = {}
    count = samples.count(plan.batch, plan.inputs)
    for number in range(count):
        inputs = samples.inputs(plan, number)
        feeds = _widened(inputs)
        results.append(context.run(inputs))
        expected.append(reference.outputs(feeds))
        share = Share(plan.batch, number, count)
        found = amplification(reference, feeds, expected[-1], coarsest, share, samples.seed)
        growth = {name: each.most(growth.get(name, Growth())) for name, each in found.items()}
    return results, expected, growth


def _widened(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: widened(array) for name, array in inputs.items()}


def _same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _failure(code: str, message: str, library: Path) -> BoltError:
    return BoltError([Diagnostic(code, message, subject=str(library))], ExitCode.VERIFY_FAILED)
