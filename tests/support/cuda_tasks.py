"""Tasks of an engine for a GPU, with tools that are not there."""

from __future__ import annotations

from bolt_build.build.files import FileStamp
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.plan_file import EngineSummary, UnitSummary
from bolt_build.build.planning.task_graph import task_graph
from bolt_build.build.tasks import Task, TaskGraph
from bolt_build.families import load
from bolt_build.schema.recipe import (
    EngineSpec,
    FusionPolicy,
    IoSpec,
    ModelSpec,
    Policy,
    Recipe,
    TargetSpec,
    VerifySpec,
)
from bolt_build.targets import target_named
from bolt_build.toolchain import Tool, Toolchain

TOOLS = Toolchain(
    (
        Tool("cxx", "/usr/bin/g++", "12", "c", libraries=("/usr/lib/libgomp.so.1",)),
        Tool("nvcc", "/cuda/bin/nvcc", "13.0", "n", ("/cuda/include",), ("/cuda/lib",)),
        Tool("cutlass", "/cutlass/include", "4.2", "u", ("/cutlass/include",)),
        Tool("onednn", "/onednn/libdnnl.so", "3.2", "o", ("/onednn/include",), ("/onednn",)),
    )
)


def graph(name: str = "net", target: str = "h200", units: tuple[UnitSummary, ...] = ()) -> TaskGraph:
    sources = ("engine.cpp", "plan_b1.cu", f"{name}.h", "exports.map")
    engine = EngineSummary(name, sources, units, (1,), "0" * 64, 64, 64, 1)
    recipe = Recipe(
        f"{name}.yaml", name, ModelSpec("/m.onnx", None, (1,), ()), (TargetSpec(target, "fp16"),),
        Policy(FusionPolicy(epilogue=True)), (), EngineSpec(IoSpec("model", "model")),
        VerifySpec("onnxruntime", 1, 0), (),
    )  # fmt: skip
    row = target_named(target)
    model = ModelFile((FileStamp("/m.onnx", "1" * 64, 1, 0, 0),))
    return task_graph(BuildContext(recipe, row, load(row), TOOLS, engine, model, verified=False))


def named(tasks: TaskGraph, name: str) -> Task:
    return next(task for task in tasks.tasks if task.name == name)


UNIT = UnitSummary("k_0123.cu", 3700)
