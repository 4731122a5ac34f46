"""Engines small enough to compile in a test: plans written by hand, and a family of plain kernels without libraries.

`tiny_plan` is relu(reshape(x * scale + shift)): a prepared kernel with shared weights and scratch memory, one that
reads its weight at run time, a view, and one without state. `ports_plan` copies inputs of any type to outputs.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from plain_family import PlainFamily
from shared_folders import entered

from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.emit.engine import emit, emit_runner
from bolt_build.emit.manifest import BuildFacts
from bolt_build.emit.weights import write_weights
from bolt_build.families.base import (
    Candidate,
    Family,
    KernelProblem,
    Operand,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.graph.ir import Array, EpilogueOp, Layout, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Identity, Reshape
from bolt_build.planner.engine_plan import (
    PLAN_VERSION,
    BatchPlan,
    EnginePlan,
    Location,
    Port,
    Step,
    StepTensor,
    WeightSlot,
)
from bolt_build.runtime import names
from bolt_build.targets import Target, target_named

DATA = Path(__file__).parents[1] / "data" / "emit"
FACTS = BuildFacts(recipe="11" * 32, version="0")
_FLAGS = (
    "-std=c++17", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
    *target_named("host").compile_flags, "-O0",
)  # fmt: skip


class TinyFamily(PlainFamily):
    """Kernels of `data/emit/plain/kernels.h`. Plans name its candidates by hand."""

    include_dir = DATA

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        shape = problem.inputs[0].shape
        channels, count = shape[-1], problem.inputs[0].type.elements
        includes = ("plain/kernels.h",)
        op = problem.op
        if isinstance(op, Binary) and op.function == "mul":
            arguments = f'{at.prepare_inputs[1]}, "scale", {channels}'
            call = f"kernel.run(r, {at.inputs[0]}, {at.outputs[0]}, {count // channels});"
            return StepCode(includes, "plain::Scale", arguments, call)
        if isinstance(op, Binary):
            call = f"plain::add({at.inputs[0]}, {at.inputs[1]}, {at.outputs[0]}, {count // channels}, {channels});"
            return StepCode(includes, None, "", call)
        if isinstance(op, Activation):
            return StepCode(includes, None, "", f"plain::relu({at.inputs[0]}, {at.outputs[0]}, {count});")
        return StepCode(
            includes, None, "", f"std::memcpy({at.outputs[0]}, {at.inputs[0]}, {problem.inputs[0].nbytes});"
        )


FAMILIES: tuple[Family, ...] = (TinyFamily(),)


def operand(
    shape: tuple[int, ...], dtype: DType = DType.F32, layout: Layout = Layout.ROW, constant: bool = False
) -> Operand:
    return Operand(shape, TensorFormat(dtype, layout), constant)


def step(
    index: int,
    name: str,
    op: Op,
    inputs: Sequence[StepTensor],
    output: StepTensor,
    after: tuple[int, ...] = (),
    view: bool = False,
    covers: tuple[str, ...] = (),
    epilogue: tuple[EpilogueOp, ...] = (),
) -> Step:
    problem = KernelProblem(op, tuple(t.operand for t in inputs), (output.operand,), epilogue, DType.F32, target="host")
    candidate = Candidate("plain", () if view else (("unroll", 1),))
    return Step(index, name, covers or (name,), problem, candidate, tuple(inputs), (output,), after, view)


def arena(value: str, form: Operand, at: int, onnx: str | None) -> StepTensor:
    return StepTensor(value, form, Location("arena", at), onnx)


def _tiny_batch(batch: int, channels: int) -> BatchPlan:
    image, flat = operand((batch, 3, channels)), operand((batch, 3 * channels))
    row = operand((channels,), constant=True)
    x = StepTensor("x", image, Location("input", 0), "x")
    scale = StepTensor("scale", row, Location("weight", 0), "scale")
    shift = StepTensor("shift", row, Location("weight", 1), "shift")
    size = -(-image.nbytes // 64) * 64
    scaled = arena("scaled", image, 0, "scaled")
    shifted = arena("x.shifted", image, size, None)
    view = arena("flat", flat, size, "flat")
    y = StepTensor("y", flat, Location("output", 0), "y")
    steps = (
        step(0, "Mul_0", Binary("mul"), [x, scale], scaled),
        step(1, "Add_1", Binary("add"), [scaled, shift], shifted, (0,), covers=("Pre_1", "Add_1")),
        step(2, "Reshape_2", Reshape(flat.shape), [shifted], view, (1,), view=True),
        step(3, "Relu_3", Activation("relu"), [view], y, (1,)),
    )
    return BatchPlan(batch, (Port("x", image),), (Port("y", flat),), steps, 2 * size, 2 * image.nbytes)


def tiny_plan(
    name: str = "tiny", batches: tuple[int, ...] = (1, 4), channels: int = 5, target: str = "host"
) -> EnginePlan:
    """relu(reshape(x * scale + shift)), x: f32 (batch, 3, channels), y: f32 (batch, 3 * channels)."""
    nbytes = 4 * channels
    second = -(-nbytes // 64) * 64
    slots = (
        WeightSlot("scale", DType.F32, (channels,), 0, nbytes),
        WeightSlot("shift", DType.F32, (channels,), second, nbytes),
    )
    plans = tuple(_tiny_batch(batch, channels) for batch in batches)
    return EnginePlan(PLAN_VERSION, name, target, "fp32", f"structure of {name}", slots, plans, (), ())


def tiny_constants(channels: int = 5, scale: float = 2.0, shift: float = -1.0) -> tuple[Array, Array]:
    """Weights of `tiny_plan`: scale * (1, 2, ...) and shift everywhere."""
    ramp = np.arange(1, channels + 1, dtype=np.float32)
    return scale * ramp, np.full(channels, shift, np.float32)


def tiny_reference(x: Array, constants: Sequence[Array]) -> Array:
    y: Array = np.maximum(x * constants[0] + constants[1], 0).reshape(x.shape[0], -1)
    return y


def ports_plan(ports: Sequence[tuple[str, Operand]], name: str = "ports") -> EnginePlan:
    """Copies every input `NAME` to an output `NAME_out`; no weights, no arena. One batch, that of the shapes."""
    steps = tuple(
        step(
            i,
            f"Copy_{i}",
            Identity(),
            [StepTensor(port, form, Location("input", i), port)],
            StepTensor(f"{port}_out", form, Location("output", i), f"{port}_out"),
        )
        for i, (port, form) in enumerate(ports)
    )
    inputs = tuple(Port(port, form) for port, form in ports)
    outputs = tuple(Port(f"{port}_out", form) for port, form in ports)
    batch = BatchPlan(ports[0][1].shape[0], inputs, outputs, steps, 0, 0)
    return EnginePlan(PLAN_VERSION, name, "host", "fp32", f"structure of {name}", (), (batch,), (), ())


def _run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def compiled_once(source: Path) -> Path:
    """The object of a source of the runtime or the runner, for every engine and runner of this run of tests."""
    with entered(f"tiny-{source.parent.name}-{source.stem}") as folder:
        made = folder / "made.o"
        if not made.exists():
            includes = ("-I", runtime.include_dir(), "-I", runtime.runner_include_dir())
            _run("g++", *_FLAGS, *includes, "-c", source, "-o", made)
    return made


def build_engine(
    directory: Path, plan: EnginePlan, constants: Sequence[Array], *, target: Target | None = None
) -> Path:
    """Emits, compiles and links `plan` in `directory`, weights beside it. Returns the library.

    `target` says what the engine tells of itself, where it is not the plan's own.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = emit(plan, target or target_named(plan.target), FAMILIES, FACTS)
    for file in files:
        (directory / file.path).write_text(file.text)
    generated = [directory / file.path for file in files if file.path.endswith(".cpp")]
    objects = [compiled_once(source) for source in runtime.sources("cpu")]
    library = directory / names.library(plan.name)
    _run(
        "g++", *_FLAGS, "-shared", f"-Wl,-soname,{library.name}",
        f"-Wl,--version-script={directory / names.EXPORTS}", "-I", runtime.include_dir(), "-I", DATA, "-I", directory,
        *generated, *objects, "-o", library,
    )  # fmt: skip
    write_weights(directory / names.weights(plan.name), plan, constants)
    return library


def build_runner(library: Path, plan: EnginePlan) -> Path:
    """Compiles the runner program beside `library`."""
    directory = library.parent
    source = emit_runner(plan)
    (directory / source.path).write_text(source.text)
    objects = [compiled_once(path) for path in runtime.runner_sources()]
    program = directory / names.runner(plan.name)
    _run(
        "g++", *_FLAGS, "-I", runtime.include_dir(), "-I", runtime.runner_include_dir(), directory / source.path,
        *objects, library, "-Wl,-rpath,$ORIGIN", "-o", program,
    )  # fmt: skip
    return program


def build_program(source: Path, program: Path) -> Path:
    """Compiles a C++ program that stands in for an engine's generated files, with the runtime. Returns `program`."""
    objects = [compiled_once(path) for path in runtime.sources("cpu")]
    _run(
        "g++", *_FLAGS, "-I", runtime.include_dir(), source, *objects,
        "-o", program,
    )  # fmt: skip
    return program
