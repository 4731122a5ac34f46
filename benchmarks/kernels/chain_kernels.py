"""Depthwise convolutions with the products around them, or with the normalisation behind them, in one kernel, beside
the best kernels apart: shapes of MobileNetV2, MobileNetV3, MNASNet, EfficientNet-B0 and ConvNeXt at batch 32, in fp16.

    python benchmarks/kernels/chain_kernels.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/chain_kernels.py FOLDER --out FILE       # on an H200: runs them, compiled or not
    python benchmarks/kernels/chain_kernels.py FOLDER --list           # anywhere: the kernels, with predicted times

`--only normed` takes one of the ways: chain, expanded, averaged (expanded, with the means), inverted, normed.

Kernels in one are compared with PyTorch in fp32 on the GPU (what lies between rounded as the kernels do), or without
it with NumPy; then all are timed from replayed graphs, their launches overlapped as an engine's are, on buffers beyond
L2. Of each way the first `--count` candidates by prediction are tried, of those apart the first `--apart`; kernels
begin with the first candidate of every shape, and after `--seconds` no more are tried. FOLDER keeps what was compiled.
Writes `results/chain_kernels.json`, with `--only normed` `results/normed_kernels.json`; times are us.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from benchmarks.kernels.kernel_trials import prepare
from bolt_build.families import load
from bolt_build.families.base import KernelProblem, ProposedStep, TensorFormat
from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import Array, EpilogueOp, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.chain import Averaged, Chain, Normed
from bolt_build.graph.ops.products.conv import Conv

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import NUMPY, Input, Layer
from families_layers import RELU, stage
from gpu_depthwise_chains import averaged_step, depthwise, expanded, inverted, step_of
from gpu_normed import normed
from gpu_normed import step_of as normed_step
from gpu_products import GELU, SILU

BATCH = 32
TARGET = gpu_harness.TARGET
WAYS = ("chain", "expanded", "averaged", "inverted", "normed")
RELU6 = (EpilogueOp(Activation("clip", 0.0, 6.0)),)
SWISH = (EpilogueOp(Activation("hard_swish")),)


@dataclass(frozen=True)
class Shape:
    """A block: extent of its input, channels given, expanded and left; `given` is 0 where no product is in front, and
    `filters` 0 where the one behind waits for squeeze and excitation, or for a normalisation where there is one."""

    extent: int
    given: int
    channels: int
    filters: int
    kernel: int = 3
    stride: int = 1
    residual: bool = False
    between: tuple[EpilogueOp, ...] = RELU6
    behind: tuple[EpilogueOp, ...] = ()
    batch: int = BATCH

    @property
    def ways(self) -> tuple[str, ...]:
        """What can be one kernel."""
        if not self.filters and not self.given:
            return ("normed",)
        if not self.filters:
            return ("expanded", "averaged")
        found = (("chain", self.filters), ("expanded", self.given), ("inverted", self.filters and self.given))
        return tuple(way for way, there in found if there)

    def layer(self, way: str) -> Layer:
        """The depthwise convolution with the product behind it, with the one in front, or all three; or with its
        normalisation."""
        label = f"{self.extent} {self.kernel}x{self.kernel}s{self.stride}"
        after = (stage("add", 3),) if self.residual else self.behind
        if way == "normed":
            label = f"{label} {self.channels} normed{'' if self.batch == BATCH else f' b{self.batch}'}"
            x = (self.batch, self.channels, self.extent, self.extent)
            return normed(label, x, self.kernel, self.stride, self.behind, epilogue=self.between)
        if way == "chain":
            x = (BATCH, self.channels, self.extent, self.extent)
            label = f"{label} {self.channels}"
            return depthwise(label, x, self.filters, self.kernel, self.stride, after, epilogue=self.between)
        x, label = (BATCH, self.given, self.extent, self.extent), f"{label} {self.given} {self.channels}"
        if way in ("expanded", "averaged"):
            return expanded(label, x, self.channels, self.kernel, self.stride, epilogue=self.between)
        return inverted(label, x, self.channels, self.filters, self.kernel, self.stride, after, epilogue=self.between)


MOBILENET_V2 = (
    Shape(112, 0, 32, 16), Shape(112, 16, 96, 24, stride=2), Shape(56, 24, 144, 24, residual=True),
    Shape(56, 24, 144, 32, stride=2), Shape(28, 32, 192, 32, residual=True), Shape(28, 32, 192, 64, stride=2),
    Shape(14, 64, 384, 64, residual=True), Shape(14, 96, 576, 96, residual=True), Shape(14, 96, 576, 160, stride=2),
    Shape(7, 160, 960, 160, residual=True), Shape(7, 160, 960, 320),
)  # fmt: skip
OTHERS = (
    Shape(56, 24, 72, 40, 5, 2, between=(RELU,)), Shape(14, 80, 480, 80, 5, residual=True, between=(RELU,)),
    Shape(14, 80, 200, 80, residual=True, between=SWISH), Shape(112, 16, 64, 24, stride=2, between=(RELU,)),
    Shape(56, 0, 96, 384, 7, between=(), behind=GELU), Shape(14, 0, 512, 512, between=(RELU,), behind=(RELU,)),
    Shape(112, 16, 96, 0, stride=2, between=SILU), Shape(56, 24, 144, 0, 5, 2, between=SILU),
    Shape(28, 40, 240, 0, 5, between=SILU), Shape(14, 112, 672, 0, 5, between=SILU),
)  # fmt: skip
CONVNEXT = tuple(
    Shape(extent, 0, channels, 0, 7, between=(), batch=batch)
    for batch in (BATCH, 1)
    for extent, channels in ((56, 96), (28, 192), (14, 384), (7, 768))
)


@dataclass(frozen=True)
class Planned:
    """A kernel to try: of a shape, `way` is one of WAYS, or the node alone that it computes: 0, 1 or 2."""

    shape: Shape
    way: str
    turn: int
    trial: gpu_harness.Trial
    predicted_us: float


def planned(count: int, apart: int, only: str | None = None) -> list[Planned]:
    """Every kernel, or those of one way alone, and of its parts, those of the first turn first; a problem that several
    shapes have apart is there once."""
    families = load(TARGET)
    found: list[Planned] = []
    known: set[KernelProblem] = set()
    for shape in (*CONVNEXT, *MOBILENET_V2, *OTHERS):
        for way in shape.ways:
            if only not in (None, way):
                continue
            layer = shape.layer(way)
            if way == "averaged":
                layer, step = averaged_step(layer)
            else:
                step = normed_step(layer) if way == "normed" else step_of(layer)
            if step.problem in known:
                continue
            known.add(step.problem)
            found += _kernels(shape, way, layer, step, families, count)
            for place, problem in enumerate(parts(step.problem)):
                # What stands behind one another alone is stored; its values do not matter for a time.
                if problem not in known:
                    known.add(problem)
                    found += _kernels(shape, str(place), _alone(layer, problem), _step(problem), families, apart)
    return sorted(found, key=lambda each: each.turn)


def _kernels(shape: Shape, way: str, layer: Layer, step: ProposedStep, families: Any, count: int) -> list[Planned]:
    offered = [
        (family.predict(step.problem, candidate, TARGET), at, candidate)
        for family in families
        for at, candidate in enumerate(family.candidates(step.problem, TARGET)[0][:count])
    ]
    # Kernels apart are compared elsewhere.
    large = way not in WAYS
    return [
        Planned(shape, way, at, gpu_harness.Trial(layer, step, candidate, large=large, timed=True), 1e6 * seconds)
        for seconds, at, candidate in offered
        if candidate.family in ("cutlass", "grouped") or isinstance(step.problem.op, Norm | Reduce)
    ]


def _step(problem: KernelProblem) -> ProposedStep:
    names = tuple(f"x{index}" for index in range(len(problem.inputs)))
    return ProposedStep(problem, names, ("y",))


def _alone(layer: Layer, problem: KernelProblem) -> Layer:
    inputs = tuple(Input(each.shape, each.constant, -0.1, 0.1) for each in problem.inputs)
    return Layer(f"{layer.label} alone", problem.op, inputs, problem.epilogue, layer.precision, layer.tolerance)


_REPEATED = 1_000_003


class Library(gpu_harness.Library):
    """Kernels in one are compared with PyTorch where it is there."""

    def _inputs(self, layer: Layer, formats: tuple[TensorFormat, ...]) -> tuple[list[Array], list[Array]]:
        """Random numbers that repeat themselves, in no time that matters beside a kernel's."""
        if (layer, formats) not in self._kept:
            stored, memories = [], []
            for index, (given, format) in enumerate(zip(layer.inputs, formats, strict=True)):
                last = format.layout is Layout.CHANNELS_LAST and len(given.shape) > 2
                shape = (given.shape[0], *given.shape[2:], given.shape[1]) if last else given.shape
                block = np.random.RandomState(index).uniform(given.low, given.high, _REPEATED)
                memory = np.resize(block.astype(NUMPY[format.dtype]), shape)
                memories.append(memory)
                stored.append(np.moveaxis(memory, -1, 1) if last else memory)
            self._kept = {(layer, formats): (stored, memories)}
        return self._kept[layer, formats]

    def _expected(self, layer: Layer, stored: list[Array], there: int = 0) -> tuple[Array, ...]:
        if self._wanted and self._wanted[0] is stored:
            return self._wanted[1]
        try:
            import torch
        except ModuleNotFoundError:
            return super()._expected(layer, stored, there)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        tensors = [torch.from_numpy(each).cuda().float() for each in stored]
        op, epilogue, begin = layer.op, layer.epilogue, 0
        x = tensors[0]
        if isinstance(op, Normed):
            self._wanted = (stored, (_torch_normed(x, op, tensors, layer).cpu().numpy(),))
            return self._wanted[1]
        if isinstance(op, Averaged):
            op, epilogue = op.first, op.between
        while isinstance(op, Chain):
            x = _torch_conv(x, op.first, tensors[begin + 1 : begin + op.operands], op.between, []).half().float()
            begin, epilogue, op = begin + op.operands - 1, _moved(epilogue, 1 - op.operands), op.second
        y = _torch_conv(x, op, tensors[begin + 1 :], epilogue, tensors[begin + 1 :])
        more = (y.mean((2, 3), keepdim=True).cpu().numpy(),) if isinstance(layer.op, Averaged) else ()
        self._wanted = (stored, (y.cpu().numpy(), *more))
        return self._wanted[1]


def _moved(epilogue: tuple[EpilogueOp, ...], by: int) -> tuple[EpilogueOp, ...]:
    return tuple(each if each.operand is None else replace(each, operand=each.operand + by) for each in epilogue)


def _torch_normed(x: Any, op: Normed, tensors: list[Any], layer: Layer) -> Any:
    from torch.nn import functional

    assert isinstance(op.second, Norm)
    assert op.second.statistic == "variance"
    y = _torch_conv(x, op.first, tensors[1 : op.operands], op.between, []).half().float().permute(0, 2, 3, 1)
    return functional.layer_norm(y, y.shape[-1:], *tensors[op.operands :], op.second.epsilon)


def _torch_conv(x: Any, op: Any, own: list[Any], epilogue: tuple[EpilogueOp, ...], operands: list[Any]) -> Any:
    from torch.nn import functional

    assert isinstance(op, Conv)
    y = functional.conv2d(x, own[0], own[1], op.strides, op.pads_begin, op.dilations, op.groups)
    for each in epilogue:
        if isinstance(each.op, Binary):
            y = y + operands[each.operand - 1]  # type: ignore[operator]
            continue
        function = each.op.function  # type: ignore[attr-defined]
        known = {
            "relu": functional.relu, "silu": functional.silu, "hard_swish": functional.hardswish,
            "gelu": functional.gelu, "clip": lambda t, of=each.op: t.clamp(of.alpha, of.beta),
        }  # fmt: skip
        y = known[function](y)
    return y


def measured(
    plan: Sequence[Planned], library: Library, seconds: float
) -> tuple[list[dict[str, Any]], dict[KernelProblem, float], int]:
    """What came of each kernel that was begun within `seconds`, us of the fastest right one of each problem, and how
    many were wrong. Equal layers stand beside each other, so that their inputs are made once."""
    begun, kernels, wrong = time.monotonic(), [], 0
    best: dict[KernelProblem, float] = {}
    for index in sorted(range(len(plan)), key=lambda at: (plan[at].turn, at)):
        each = plan[index]
        if time.monotonic() - begun > seconds:
            break
        outcome = library.run(index)
        right = outcome.message == "" and outcome.error <= 1.0
        wrong += not right
        problem = each.trial.step.problem
        if right and outcome.microseconds is not None:
            best[problem] = min(best.get(problem, math.inf), outcome.microseconds)
        kernels.append({
            "layer": each.trial.layer.label, "way": each.way, "candidate": str(each.trial.candidate),
            "predicted_us": each.predicted_us, "us": outcome.microseconds if right else None, "error": outcome.error,
            "message": outcome.message,
        })  # fmt: skip
        if not right:
            print(f"WRONG {outcome.error:9.3g} {outcome.label} {outcome.message}", flush=True)
    return kernels, best, wrong


def shapes(plan: Sequence[Planned], best: Mapping[KernelProblem, float]) -> dict[str, Any]:
    """Of each shape and way the fastest kernel in one beside the fastest apart; NaN for what was not timed."""
    rows: dict[str, Any] = {}
    for each in plan:
        problem = each.trial.step.problem
        if each.way in WAYS and each.turn == 0:
            apart = [best.get(part, math.nan) for part in parts(problem)]
            together = best.get(problem, math.nan)
            row = {"way": each.way, "us": together, "apart_us": apart, "speed": sum(apart) / together}
            rows[each.trial.layer.label] = row
            words = " + ".join(f"{time:.2f}" for time in apart)
            times = f"{together:7.2f} us, apart {sum(apart):7.2f} ({words})"
            print(f"{each.trial.layer.label:32} {times}, {row['speed']:.2f}")
    return rows


def known(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON has it: nothing in the place of NaN."""

    def number(value: float) -> float | None:
        return None if np.isnan(value) else value

    found = {"us": number(row["us"]), "speed": number(row["speed"])}
    return {**row, **found, "apart_us": [number(each) for each in row["apart_us"]]}


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prepare", action="store_true", help="compile, and run nothing")
    parser.add_argument("--list", action="store_true", help="compile and run nothing")
    parser.add_argument("--count", type=int, default=4, help="candidates in one kernel of each shape")
    parser.add_argument("--apart", type=int, default=2, help="candidates of each kernel apart")
    parser.add_argument("--only", choices=WAYS, help="this way alone, and the kernels apart that it stands for")
    parser.add_argument("--seconds", type=float, default=90, help="after these no more are tried")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = asked()
    plan = planned(arguments.count, arguments.apart, arguments.only)
    if arguments.list:
        for each in plan:
            print(f"{each.predicted_us:8.2f} {each.trial.label}")
        print(len(plan), "kernels")
        return 0
    if arguments.prepare or not (arguments.folder / "kernels.so").exists():
        prepare(arguments.folder, [each.trial for each in plan])
    if arguments.prepare:
        return 0
    library = Library(arguments.folder)
    if library.trials != [each.trial for each in plan]:
        raise SystemExit(f"{arguments.folder} was prepared for other kernels: delete it")
    kernels, best, wrong = measured(plan, library, arguments.seconds)
    rows = shapes(plan, best)
    speeds = [row["speed"] for row in rows.values() if not np.isnan(row["speed"])]
    summary = {
        "geometric_mean": math.exp(sum(map(math.log, speeds)) / len(speeds)) if speeds else None,
        "least": min(speeds, default=None), "rows": len(speeds), "wrong": wrong, "tried": len(kernels),
    }  # fmt: skip
    facts = record.environment("nvidia-cuda-nvcc", "nvidia-cutlass")
    facts["command"] = facts["command"].replace(str(arguments.folder), "FOLDER")
    found = {layer: known(row) for layer, row in rows.items()}
    result = {**facts, "batch": BATCH, "summary": summary, "shapes": found, "kernels": kernels}
    record.write(f"{arguments.only or 'chain'}_kernels", result, arguments.out)
    print(summary)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
