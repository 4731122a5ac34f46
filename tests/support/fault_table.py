"""Plants every fault in every layer of a planned engine and lets verification judge it.

A layer's inputs in the engine are what they are, whatever is wrong before it, so a fault shows in its own layer alone;
what lies behind is right for what it reads. So an engine is run once, and each fault costs one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from planned_engine import Executed, PlannedContext, PlannedModel
from planted import FAULTS, norms_of

from bolt_build.build.planning.engine_from_model import parse, plan_parsed
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.samples import sample
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import VerifySpec
from bolt_build.targets import target_named
from bolt_build.verify.engine import verify_model
from bolt_build.verify.judgement import SPREAD
from bolt_build.verify.layers import layer_report
from bolt_build.verify.reference import Expected, Reference
from bolt_build.verify.report import LayerReport
from bolt_build.verify.taps import Tap, taps_of


@dataclass(frozen=True)
class Outcome:
    """One fault in one layer. `change` is the root mean square of what the fault changes, `rounding` that of what
    rounding can do and `right` that of what the right layer is off by, each as a part of the tensor's own."""

    layer: str
    kernel: str
    fault: str
    found: bool
    change: float
    rounding: float
    right: float

    @property
    def why(self) -> str:
        """Why it was not found; empty where it was."""
        if self.found:
            return ""
        if self.change == 0.0:
            return "changes nothing"
        return "within rounding" if self.change <= SPREAD * self.rounding else "missed"


@dataclass(frozen=True)
class Engine:
    """A planned engine, its model, and one run of it."""

    reference: Reference
    planned: PlannedEngine
    plan: BatchPlan
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    steps: tuple[Executed, ...]


def planned_engine(path: Path, target: str, precision: str, batch: int = 2) -> Engine:
    """The engine that the planner would make of an ONNX file, without a lock, run on a seeded input."""
    recipe = path.with_suffix(f".{target}.{precision}.yaml")
    model = f"{{onnx: {path.name}, batch: {batch}}}"
    recipe.write_text(f"bolt: 1\nname: net\nmodel: {model}\ntargets: {{{target}: {{precision: {precision}}}}}\n")
    loaded = load_recipe(recipe)
    planned = plan_parsed(parse(path), loaded, loaded.targets[0], target_named(target))
    (plan,) = planned.plan.plans
    inputs = {
        port.name: sample(port.operand.shape, 0, batch, 0, index).astype(numpy_dtype(port.operand.type.dtype))
        for index, port in enumerate(plan.inputs)
    }
    steps = tuple(PlannedContext(plan, planned.constants).execute(inputs))
    return Engine(Reference(path, ()), planned, plan, onnx.load(path), inputs, steps)


def judged(engine: Engine) -> Iterator[tuple[Executed, Tap, Expected]]:
    """Every observed step with what the reference expects of it: of its first output, in which faults are planted."""
    held = dict(engine.inputs)
    for each in engine.steps:
        held |= zip((tensor.value for tensor in each.step.outputs), (each.result, *each.others), strict=True)
    done = {executed.step.index: executed for executed in engine.steps}
    taps = tuple(
        tap
        for tap in taps_of(engine.plan)
        if tap.tensor in engine.reference.observable
        and not tap.view
        and tap.tensor == done[tap.step].step.outputs[0].onnx
    )
    expected = engine.reference.expected(taps, held, {name: name for name in engine.inputs})
    yield from ((done[tap.step], tap, found) for tap, found in zip(taps, expected, strict=True))


def right_layers(engine: Engine) -> tuple[LayerReport, ...]:
    """What verification says of the layers as they are."""
    return tuple(layer_report(tap, done.result, expected) for done, tap, expected in judged(engine))


def outcomes(engine: Engine) -> Iterator[Outcome]:
    """Every fault in every layer that can have it."""
    norms = norms_of(engine.model)
    for done, tap, expected in judged(engine):
        right = done.result.astype(np.float32)
        for name, fault in FAULTS.items():
            wrong = fault(done, norms)
            if wrong is None:
                continue
            report = layer_report(tap, wrong, expected)
            signal = max(report.signal, 1e-30)
            with np.errstate(all="ignore"):
                change, off = _rms(wrong.astype(np.float32) - right), _rms(right - expected.tensor)
            yield Outcome(
                tap.name, tap.kernel, name, not report.ok, change / signal, report.noise / signal, off / signal
            )


def _rms(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def whole_verifications(engine: Engine, found: Sequence[Outcome]) -> Iterator[bool]:
    """For one layer of each kind of fault, whether a verification of the whole engine, with all behind the layer
    computed from the fault, says the same: that layer departs and no other, or none does."""
    norms = norms_of(engine.model)
    steps = {step.name: step for step in engine.plan.steps}
    for name in dict.fromkeys(outcome.fault for outcome in found):
        each = [outcome for outcome in found if outcome.fault == name]
        chosen = each[len(each) // 2]

        def changed(done: Executed, name: str = name) -> Array:
            wrong = FAULTS[name](done, norms)
            assert wrong is not None
            return wrong

        model = PlannedModel(engine.planned, {steps[chosen.layer].index: changed})
        report = verify_model(model, engine.reference, engine.planned.plan, VerifySpec("onnxruntime", 1, 0))
        departed = [layer.name for layer in report.batches[0].layers if not layer.ok]
        yield departed == ([chosen.layer] if chosen.found else [])
