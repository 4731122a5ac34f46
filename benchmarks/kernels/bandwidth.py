"""How much of a GPU's memory bandwidth each kind of step reaches that only moves bytes: normalisations, movements,
reductions and generated chains, at sizes of real models.

    python benchmarks/kernels/bandwidth.py FOLDER build [--target h200]  # anywhere: six engines of many small graphs
    python benchmarks/kernels/bandwidth.py FOLDER tune  # or on the GPU, which measures their kernels first
    python benchmarks/kernels/bandwidth.py FOLDER measure  # on the GPU: writes FOLDER/bandwidth_rows.json
    python benchmarks/kernels/bandwidth.py FOLDER close                      # anywhere: writes results/bandwidth.json

`--only norms` restricts all of it to one of the engines: rows, images, norms, long, planes or nets.

Every step is timed alone, executions one after the other (`Context.step_seconds`). Its bytes are those of its inputs
and outputs, each once; of a gather or a slice, of what it takes. What fits the L2 may stay there, as in an engine: the
tensors of batch 32 do on an H200, those of 256 mostly not; those of `norms` and later ones are larger.
`share` is of the target's bandwidth, launch included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.bolt_command import bolt, build_one
from bolt_build.build.engine_file import read_engine
from bolt_build.graph.ops.gather import Gather
from bolt_build.graph.ops.shape import Slice
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine
from bolt_build.targets import target_named

BATCHES = (1, 32, 256)
REPEATS = 50


class Net:
    """Graphs beside each other, each of inputs of its own: what is called `case/Op` is of `case`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, case: str, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        name = f"{case}.{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, ["N", *shape]))
        return name

    def constant(self, case: str, array: np.ndarray[Any, Any]) -> str:
        name = f"{case}.constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def vector(self, case: str, *shape: int) -> str:
        return self.constant(case, np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape))

    def node(self, case: str, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{case}/{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def model(self, opset: int) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "bandwidth", self.inputs, self.outputs, self.constants)
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


@dataclass(frozen=True)
class Case:
    """`make` adds the case's nodes of a batch-sized input of `shape`, and gives the tensor that is its result."""

    kind: str
    name: str
    shape: tuple[int, ...]
    make: Callable[[Net, str, str], str]


def layer_norm(n: Net, case: str, x: str, channels: int) -> str:
    return n.node(case, "LayerNormalization", x, n.vector(case, channels), n.vector(case, channels), axis=-1)


def group_norm(n: Net, case: str, x: str, channels: int) -> str:
    return n.node(case, "InstanceNormalization", x, n.vector(case, channels), n.vector(case, channels))


def channel_groups(n: Net, case: str, x: str, channels: int, groups: int = 32) -> str:
    scale, bias = n.vector(case, channels), n.vector(case, channels)
    return n.node(case, "GroupNormalization", x, scale, bias, num_groups=groups, epsilon=1e-5)


def swish(n: Net, case: str, x: str) -> str:
    return n.node(case, "Mul", x, n.node(case, "Sigmoid", x))


def channel_norm(n: Net, case: str, x: str, channels: int) -> str:
    """Of images in planes, as exporters write what networks call LayerNorm2d."""
    last = layer_norm(n, case, n.node(case, "Transpose", x, perm=[0, 2, 3, 1]), channels)
    return n.node(case, "Transpose", last, perm=[0, 3, 1, 2])


def part(n: Net, case: str, x: str, axis: int, begin: int, end: int) -> str:
    bounds = [n.constant(case, np.array([value], np.int64)) for value in (begin, end, axis)]
    return n.node(case, "Slice", x, *bounds)


def padded(n: Net, case: str, x: str, *pads: int) -> str:
    return n.node(case, "Pad", x, n.constant(case, np.array(pads, np.int64)))


def tokens(n: Net, case: str, x: str, words: int, hidden: int) -> str:
    return n.node(case, "Gather", n.vector(case, words, hidden), x, axis=0)


ROWS = (
    Case("normalisation", "layer_norm_768", (128, 768), lambda n, c, x: layer_norm(n, c, x, 768)),
    Case("normalisation", "layer_norm_1024", (384, 1024), lambda n, c, x: layer_norm(n, c, x, 1024)),
    Case("normalisation", "layer_norm_vit", (197, 768), lambda n, c, x: layer_norm(n, c, x, 768)),
    Case("normalisation", "layer_norm_384", (1500, 384), lambda n, c, x: layer_norm(n, c, x, 384)),
    Case("normalisation", "softmax_128", (12, 128, 128), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("normalisation", "softmax_1000", (1000,), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("movement", "turn_rows", (128, 768), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1])),
    Case("movement", "heads", (128, 12, 64), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1, 3])),
    Case("movement", "token_in_front", (196, 768), lambda n, c, x: n.node(c, "Concat", n.input(c, 1, 768), x, axis=1)),
    Case("movement", "embedding", (128,), lambda n, c, x: tokens(n, c, x, 30522, 768)),
    Case("reduction", "mean_of_tokens", (128, 768), lambda n, c, x: n.node(c, "ReduceMean", x, axes=[1], keepdims=0)),
    Case("reduction", "mean_of_rows", (128, 768), lambda n, c, x: n.node(c, "ReduceMean", x, axes=[2], keepdims=0)),
    Case("chain", "residual", (128, 768), lambda n, c, x: n.node(c, "Add", x, n.input(c, 128, 768))),
    Case("chain", "positions", (128, 768), lambda n, c, x: n.node(c, "Add", x, n.vector(c, 1, 128, 768))),
    Case("chain", "tanh", (128, 3072), lambda n, c, x: n.node(c, "Tanh", x)),
    Case("chain", "gate", (128, 3072),
         lambda n, c, x: n.node(c, "Mul", n.node(c, "Sigmoid", x), n.input(c, 128, 3072))),
)  # fmt: skip
"""Cases whose tensors are rows."""
IMAGES = (
    Case("normalisation", "instance_norm", (64, 56, 56), lambda n, c, x: group_norm(n, c, x, 64)),
    Case("movement", "concat_channels", (128, 28, 28),
         lambda n, c, x: n.node(c, "Concat", x, n.input(c, 128, 28, 28), axis=1)),
    Case("movement", "upsample", (64, 28, 28),
         lambda n, c, x: n.node(c, "Resize", x, "", n.constant(c, np.array([1, 1, 2, 2], np.float32)), mode="nearest",
                                coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("reduction", "mean_7", (2048, 7, 7), lambda n, c, x: n.node(c, "GlobalAveragePool", x)),
    Case("reduction", "mean_56", (96, 56, 56), lambda n, c, x: n.node(c, "GlobalAveragePool", x)),
    Case("reduction", "max_pool", (64, 112, 112),
         lambda n, c, x: n.node(c, "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
    Case("chain", "residual_relu", (256, 56, 56),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Add", x, n.input(c, 256, 56, 56)))),
    Case("chain", "batch_norm_relu", (128, 28, 28),
         lambda n, c, x: n.node(c, "Relu", n.node(c, "Mul", x, n.vector(c, 128, 1, 1)))),
    Case("chain", "squeezed", (96, 56, 56),
         lambda n, c, x: n.node(c, "Mul", x, n.input(c, 96, 1, 1))),
)  # fmt: skip
"""Cases whose tensors are images, channels last."""
NORMS = (
    Case("normalisation", "instance_norm_128", (128, 128, 128), lambda n, c, x: group_norm(n, c, x, 128)),
    Case("normalisation", "instance_norm_64", (256, 64, 64), lambda n, c, x: group_norm(n, c, x, 256)),
    Case("normalisation", "group_norm_64", (320, 64, 64), lambda n, c, x: channel_groups(n, c, x, 320)),
    Case("normalisation", "group_norm_32", (640, 32, 32), lambda n, c, x: channel_groups(n, c, x, 640)),
    Case("normalisation", "group_norm_16", (1280, 16, 16), lambda n, c, x: channel_groups(n, c, x, 1280)),
    Case("normalisation", "mean_variance_56", (64, 56, 56),
         lambda n, c, x: n.node(c, "MeanVarianceNormalization", x, axes=[2, 3])),
    Case("normalisation", "lp_norm_56", (256, 56, 56), lambda n, c, x: n.node(c, "LpNormalization", x, axis=1, p=2)),
)  # fmt: skip
"""Normalisations of style transfer and diffusion models: images channels last."""
LONG = (
    Case("normalisation", "rms_norm_4096", (512, 4096),
         lambda n, c, x: n.node(c, "RMSNormalization", x, n.vector(c, 4096), axis=-1)),
    Case("normalisation", "layer_norm_16384", (64, 16384), lambda n, c, x: layer_norm(n, c, x, 16384)),
)  # fmt: skip
"""Normalisations of language models: long rows."""
PLANES = (
    Case("normalisation", "layer_norm_180", (4096, 180), lambda n, c, x: layer_norm(n, c, x, 180)),
    Case("normalisation", "layer_norm_2d", (96, 56, 56), lambda n, c, x: channel_norm(n, c, x, 96)),
    Case("normalisation", "softmax_4096", (256, 4096), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("normalisation", "softmax_197", (12, 197, 197), lambda n, c, x: n.node(c, "Softmax", x, axis=-1)),
    Case("movement", "turn_odd", (197, 768), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 1])),
    Case("movement", "channels_last", (96, 56, 56), lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 2, 3, 1])),
    Case("movement", "windows", (8, 7, 8, 7, 96),
         lambda n, c, x: n.node(c, "Transpose", x, perm=[0, 1, 3, 2, 4, 5])),
    Case("movement", "values", (197, 2304), lambda n, c, x: part(n, c, x, 2, 1536, 2304)),
    Case("reduction", "mean_of_planes", (96, 56, 56),
         lambda n, c, x: n.node(c, "ReduceMean", x, n.constant(c, np.array([2, 3])), keepdims=0)),
    Case("reduction", "max_of_channels", (256, 56, 56),
         lambda n, c, x: n.node(c, "ReduceMax", x, n.constant(c, np.array([1])), keepdims=1)),
    Case("chain", "masked_scores", (12, 197, 197), lambda n, c, x: n.node(c, "Add", x, n.input(c, 1, 1, 197))),
)  # fmt: skip
"""Images in planes, odd extents and rows of no whole accesses."""
NETS = (
    Case("normalisation", "group_norm_512", (512, 64, 64), lambda n, c, x: channel_groups(n, c, x, 512)),
    Case("normalisation", "group_norm_one", (64, 56, 56), lambda n, c, x: channel_groups(n, c, x, 64, 1)),
    Case("normalisation", "group_norm_swish", (640, 32, 32),
         lambda n, c, x: swish(n, c, channel_groups(n, c, x, 640))),
    Case("normalisation", "softmax_of_classes", (24, 128, 128), lambda n, c, x: n.node(c, "Softmax", x, axis=1)),
    Case("movement", "pixel_shuffle", (256, 28, 28), lambda n, c, x: n.node(c, "DepthToSpace", x, blocksize=2)),
    Case("movement", "grown_channels", (224, 28, 28),
         lambda n, c, x: n.node(c, "Concat", x, n.input(c, 32, 28, 28), axis=1)),
    Case("movement", "pad_images", (64, 56, 56), lambda n, c, x: padded(n, c, x, 0, 0, 1, 1, 0, 0, 1, 1)),
    Case("reduction", "average_3x3", (192, 35, 35),
         lambda n, c, x: n.node(c, "AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    Case("chain", "spatial_gate", (256, 56, 56),
         lambda n, c, x: n.node(c, "Mul", x, n.node(c, "Sigmoid", n.input(c, 1, 56, 56)))),
)  # fmt: skip
"""Images channels last: normalisations of groups, and what networks do between convolutions."""


@dataclass(frozen=True)
class Engines:
    """What one engine is of."""

    cases: tuple[Case, ...]
    batches: tuple[int, ...] = BATCHES
    opset: int = 17
    layout: str = "layout: channels_last"


SETS = {
    "rows": Engines(ROWS, layout=""),
    "images": Engines(IMAGES),
    "norms": Engines(NORMS, batches=(2, 32), opset=23),
    "long": Engines(LONG, batches=(2, 32), opset=23, layout=""),
    "planes": Engines(PLANES, batches=(32,), opset=23, layout=""),
    "nets": Engines(NETS, batches=(32,), opset=23),
}


def write_model(path: Path, of: Engines) -> None:
    net = Net()
    for case in of.cases:
        dtype = TensorProto.INT64 if case.name == "embedding" else TensorProto.FLOAT
        made = case.make(net, case.name, net.input(case.name, *case.shape, dtype=dtype))
        net.outputs.append(helper.make_empty_tensor_value_info(made))
    model = onnx.shape_inference.infer_shapes(net.model(of.opset))
    known = {value.name: value for value in model.graph.value_info}
    for output in model.graph.output:
        if output.name in known:
            output.CopyFrom(known[output.name])
    onnx.save(model, str(path))


def build(arguments: argparse.Namespace) -> int:
    """The engines, of kernels that are tuned here first, or of a lock there; what became of each in `engines.json`."""
    folder, made = arguments.folder, {}
    for name in arguments.only:
        of = SETS[name]
        write_model(folder / f"{name}.onnx", of)
        layout = f", {of.layout}" if of.layout else ""
        (folder / f"{name}.yaml").write_text(
            f"bolt: 1\nmodel: {{onnx: {name}.onnx, batch: {list(arguments.batches or of.batches)}}}\n"
            f"targets: {{{arguments.target}: {{precision: fp16}}}}\n"
            f"engine: {{io: {{dtype: fp16{layout}}}}}\nverify: {{samples: 1}}\n"
            f"tuning: {{lock: {name}.lock, engine: false}}\n"
        )
        if arguments.stage == "tune":
            bolt(folder, "tune", f"{name}.yaml", "--target", arguments.target)
        made[name] = build_one(folder, f"{name}.yaml", "--target", arguments.target)
        print(f"{name}: {made[name]}", flush=True)
    record.save(folder / "engines.json", made)
    return 1 if any("failed" in each for each in made.values()) else 0


def moved_bytes(step: Step) -> int:
    """What the step reads and writes at least."""
    problem = step.problem
    made = sum(operand.nbytes for operand in problem.outputs)
    if isinstance(problem.op, Gather):
        return 2 * made + problem.inputs[1].nbytes
    if isinstance(problem.op, Slice):
        return 2 * made
    return made + sum(operand.nbytes for operand in problem.inputs)


def measured(directory: Path, plan: BatchPlan, name: str, peak: float) -> list[dict[str, Any]]:
    """A row for each step of one batch; steps of one case have its name in front of a slash."""
    kinds = {case.name: case.kind for of in SETS.values() for case in of.cases}
    feeds = {}
    random = np.random.RandomState(1)
    for port in plan.inputs:
        kind, shape = port.operand.type.dtype, port.operand.shape
        feeds[port.name] = (
            random.standard_normal(shape).astype(np.float16) if kind.is_float else random.randint(0, 30522, shape)
        )
    engine = Engine(directory / names.library(name))
    with engine.create(directory / names.weights(name)) as model, model.context(plan.batch) as context:
        ports = {port.name: port.numpy_dtype for port in context.inputs}
        inputs = {key: array.astype(ports[key]) for key, array in feeds.items()}
        seconds = context.step_seconds(inputs, REPEATS)
    rows = []
    for step, taken in zip(plan.steps, seconds, strict=True):
        if step.view:
            continue
        case, moved = step.name.partition("/")[0], moved_bytes(step)
        rows.append({
            "case": case, "kind": kinds.get(case, "movement"), "step": step.name, "batch": plan.batch,
            "shape": list(step.problem.outputs[0].shape), "kernel": step.candidate.family, "bytes": moved,
            "us": 1e6 * taken, "gigabytes_per_second": moved / taken / 1e9, "share": moved / taken / peak,
        })  # fmt: skip
    return rows


def measure(arguments: argparse.Namespace) -> int:
    """Every step of the engines on this machine's GPU."""
    engines = json.loads((arguments.folder / "engines.json").read_text())
    rows: list[dict[str, Any]] = []
    for name in arguments.only:
        directory = arguments.folder / engines[name]["directory"]
        plan = read_engine((directory / "engine.json").read_text())
        peak = target_named(plan.target).bandwidth
        for batch in plan.plans:
            rows += measured(directory, batch, name, peak)
            record.save(arguments.folder / "bandwidth_rows.json", record.environment() | {"peak": peak, "rows": rows})
    for row in rows:
        print(f"{row['share']:5.0%} {row['us']:8.2f} us  {row['batch']:4} {row['kind']:14} {row['step']}", flush=True)
    return 0


def close(arguments: argparse.Namespace) -> int:
    """The table by kind of step: each case at the largest batch, and the least share of a kind."""
    found = json.loads((arguments.folder / "bandwidth_rows.json").read_text())
    for folder in arguments.merge:
        found["rows"] += json.loads((folder / "bandwidth_rows.json").read_text())["rows"]
    if arguments.keep:
        anew = {row["case"] for row in found["rows"]}
        before = json.loads((record.RESULTS / "bandwidth.json").read_text())
        kept = ({"date": before["date"], **row} for row in before["rows"] if row["case"] not in anew)
        found["rows"] += kept
    found["peak"] = target_named(arguments.target).bandwidth
    batches: dict[str, int] = {}
    for row in found["rows"]:
        row["share"] = 1e9 * row["gigabytes_per_second"] / found["peak"]
        batches[row["case"]] = max(row["batch"], batches.get(row["case"], 0))
    largest = [row for row in found["rows"] if row["batch"] == batches[row["case"]]]
    kinds = sorted({row["kind"] for row in largest})
    least = {kind: min(row["share"] for row in largest if row["kind"] == kind) for kind in kinds}
    print(json.dumps(least, indent=1))
    facts = {
        "command": "python benchmarks/kernels/bandwidth.py FOLDER build (then measure, close)",
        "target": arguments.target,
    }
    print(record.write("bandwidth", found | facts | {"least_share": least}, arguments.out))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("stage", choices=("tune", "build", "measure", "close"))
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batches", type=int, nargs="+", help="instead of each engine's own")
    parser.add_argument("--only", nargs="+", choices=tuple(SETS), default=list(SETS), help="engines")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="close: rows of these folders too")
    parser.add_argument("--keep", action="store_true", help="close: keep cases of before that FOLDER has not")
    parser.add_argument("--out", type=Path, help="write here instead of results/bandwidth.json")
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    return {"tune": build, "build": build, "measure": measure, "close": close}[arguments.stage](arguments)


if __name__ == "__main__":
    sys.exit(main())
