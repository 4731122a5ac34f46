"""C++ of an engine: plans, tables, public header, and what the runner calls it through. Equal plans give equal text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from bolt_build.dtypes import DType
from bolt_build.emit.manifest import BuildFacts, embedded_manifest
from bolt_build.emit.step_source import step_source
from bolt_build.emit.text import c_string, comment, operand_text, raw_string
from bolt_build.emit.weights import payload_bytes
from bolt_build.families.base import Family, KernelUnit, Operand
from bolt_build.graph.ir import Layout
from bolt_build.graph.limits import MOST_RANK
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, Step
from bolt_build.runtime import names
from bolt_build.targets import Target

_ABI = Path(__file__).resolve().parents[1] / "runtime" / "include" / "bolt_engine.h"
_DTYPES = {dtype: f"BOLT_{dtype.name}" for dtype in DType}
_LAYOUTS = {Layout.ROW: "BOLT_ROW", Layout.CHANNELS_LAST: "BOLT_CHANNELS_LAST"}


@dataclass(frozen=True)
class SourceFile:
    """One generated file: a name without directories, and its text."""

    path: str
    text: str


def source_names(plan: EnginePlan, target: Target) -> tuple[str, ...]:
    """Names of the files that `emit` returns before the kernel units, in its order.

    Files of C++ and of the target's `kernel_suffix` make up the library, with the units. Plans of CUDA targets are
    `.cu`: their kernels' launches are CUDA's own syntax.
    """
    return (
        "engine.cpp",
        *(f"plan_b{batch.sizes.key}.{target.kernel_suffix}" for batch in plan.plans),
        names.header(plan.name),
        names.EXPORTS,
    )


def kernel_units(plan: EnginePlan, target: Target, families: Sequence[Family]) -> tuple[KernelUnit, ...]:
    """Sources of kernels that all plans of the engine share, each once, by name."""
    found: dict[str, KernelUnit] = {}
    for family in families:
        steps = {
            (step.problem, step.candidate): None
            for batch in plan.plans
            for step in batch.steps
            if not step.view and step.candidate.family == family.name
        }
        if steps:
            found |= {unit.name: unit for unit in family.units(tuple(steps), target)}
    return tuple(found[name] for name in sorted(found))


def emit(
    plan: EnginePlan, target: Target, families: Sequence[Family], facts: BuildFacts | None = None
) -> tuple[SourceFile, ...]:
    """The library's generated files, named as `source_names` says: tables, one file a plan, header, linker script; and
    behind them the kernel units.

    The header is complete by itself: the ABI's text and the engine's one function. `facts` reach the embedded
    manifest. Raises ValueError where the plan contradicts itself or names a family not among `families`.
    """
    by_name = {family.name: family for family in families}
    texts = [
        _engine_source(plan, target, facts or BuildFacts()),
        *(_plan_source(plan, batch, by_name, target) for batch in plan.plans),
        _render("header.h.j2", name=plan.name, symbol=names.symbol(plan.name), abi=_abi_text()),
        _render("exports.map.j2", symbol=names.symbol(plan.name)),
    ]
    files = [SourceFile(name, text) for name, text in zip(source_names(plan, target), texts, strict=True)]
    return (*files, *(SourceFile(unit.name, unit.text) for unit in kernel_units(plan, target, families)))


def emit_runner(plan: EnginePlan) -> SourceFile:
    """`runner.cpp`: main() of the runner program, to be compiled with `runtime.runner_sources()`."""
    text = _render(
        "runner.cpp.j2",
        header=names.header(plan.name),
        program=c_string(names.runner(plan.name)),
        symbol=names.symbol(plan.name),
        weights=c_string(names.weights(plan.name)),
    )
    return SourceFile("runner.cpp", text)


def _abi_text() -> str:
    return _ABI.read_text(encoding="utf-8")


def _engine_source(plan: EnginePlan, target: Target, facts: BuildFacts) -> str:
    return _render(
        "engine.cpp.j2",
        arch=c_string(target.arch),
        forward="true" if target.gpu is None or target.gpu.embeds_ptx else "false",
        shared_bytes=0 if target.gpu is None else target.gpu.shared_memory,
        header=names.header(plan.name),
        inputs=len(plan.plans[0].inputs),
        layout_digest=c_string(plan.layout_digest),
        manifest=raw_string(embedded_manifest(plan, target, facts)),
        name=c_string(plan.name),
        namespace=_namespace(plan),
        outputs=len(plan.plans[0].outputs),
        axes=_axes(plan),
        unpadded=[c_string(each.refused) if each.refused else "nullptr" for each in plan.padded],
        batches=list(dict.fromkeys(batch.batch for batch in plan.plans)),
        dims=[c_string(name) for name, _ in plan.plans[0].dims],
        plans=[batch.sizes.key for batch in plan.plans],
        sizes=[batch.sizes.numbers for batch in plan.plans],
        symbol=names.symbol(plan.name),
        target=c_string(plan.target),
        title=comment(f"{plan.name} for {plan.target}, {plan.precision}"),
        weights=[
            (c_string(slot.name), slot.offset, slot.nbytes, f"{slot.dtype.value} {list(slot.shape)}")
            for slot in plan.weights
        ],
        weights_bytes=payload_bytes(plan.weights),
    )


def _axes(plan: EnginePlan) -> list[list[int]]:
    """Of each axis of each port which of a plan's numbers it follows, -1 for none; inputs, then outputs. Nothing where
    nothing is padded."""
    if all(each.refused for each in plan.padded):
        return []
    found = []
    for port in (*plan.plans[0].inputs, *plan.plans[0].outputs):
        follows = [-1] * MOST_RANK
        for which, dim in enumerate(plan.padded):
            for axis in dict(dim.axes).get(port.name, ()):
                follows[axis] = which
        found.append(follows)
    return found


def _plan_source(plan: EnginePlan, batch: BatchPlan, families: dict[str, Family], target: Target) -> str:
    where = f"BOLT_{target.where.upper()}"
    steps = [step_source(step, families, target, batch.parts(step.index)) for step in batch.steps]
    if [step.index for step in steps] != list(range(len(steps))):
        raise ValueError(f"steps of {batch.sizes} are not numbered in their order")
    return _render(
        "plan.cpp.j2",
        arena_bytes=batch.arena_bytes,
        micro_batches=[f"{{{span.first}, {span.last}, {span.parts}}}" for span in batch.micro_batches],
        batch=batch.batch,
        extents=[extent for _, extent in batch.dims],
        key=batch.sizes.key,
        includes=sorted({include for step in steps for include in step.includes}),
        inputs=[_tensor(port.name, port.operand, where) for port in batch.inputs],
        kept_weights=sorted({index for step in steps for index in step.kept_weights}),
        live_peak=batch.live_peak,
        namespace=_namespace(plan),
        outputs=[_tensor(port.name, port.operand, where) for port in batch.outputs],
        reads_sizes=any(step.problem.op.reads_sizes for step in batch.steps),
        ports=[
            comment(f"{kind} {i}: '{port.name}' {operand_text(port.operand)}")
            for kind, ports in (("input", batch.inputs), ("output", batch.outputs))
            for i, port in enumerate(ports)
        ],
        slab_bytes=batch.slab_bytes,
        steps=steps,
        taps=[tap for step in batch.steps for tap in _taps(step, where)],
        title=comment(f"{plan.name} for {plan.target}, {plan.precision}, {batch.sizes}"),
    )


def _taps(step: Step, where: str) -> list[str]:
    return [
        f"{{{step.index}, bolt::Place::{out.location.kind}, {out.location.at}, "
        f"{_tensor(out.onnx, out.operand, where)}{f', {out.location.offset}' if out.location.offset else ''}}}"
        for out in step.outputs
        if out.onnx is not None
    ]


def _tensor(name: str, operand: Operand, where: str) -> str:
    """A `bolt_tensor` initialiser."""
    kind = f"{_DTYPES[operand.format.dtype]}, {_LAYOUTS[operand.format.layout]}, {where}"
    shape = ", ".join(str(extent) for extent in operand.shape)
    return f"{{{c_string(name)}, {kind}, {len(operand.shape)}, {{{shape}}}, {operand.nbytes}}}"


def _namespace(plan: EnginePlan) -> str:
    return f"bolt_engine_{names.identifier(plan.name)}"


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bolt_build.emit", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: str, **values: object) -> str:
    data: Mapping[str, object] = values
    return _environment().get_template(template).render(data)
