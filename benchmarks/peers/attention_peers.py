"""Attention kernels of the family `attention` beside PyTorch's scaled_dot_product_attention, on one GPU: fp16, random
inputs, no mask, CUDA graphs of 20 launches. Every kernel is first compared with fp64, and so are random odd shapes.

    python benchmarks/peers/attention_peers.py [--out FILE] [--offered] [--folder FOLDER] [--checks 40] [--shapes 1]
    python benchmarks/peers/attention_peers.py --target h100 --first 12 --result attention_peers_h100

Needs torch and nvcc. FOLDER keeps what was compiled. PyTorch gets dense queries, keys and values [batch, heads, rows,
elements]; the family gets them packed, as a product leaves them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.attention.family import Attention as Family
from bolt_build.families.attention.kind import candidate_of
from bolt_build.families.attention.registry import KINDS
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.graph.ir import Layout, TensorType
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.targets import Target, target_named
from bolt_build.toolchain import probe

FAMILY = Family()
SHAPES = (
    (32, 12, 40, 64), (32, 12, 128, 64), (32, 12, 197, 64), (32, 16, 384, 64), (32, 12, 512, 64), (1, 12, 128, 64),
    (1, 12, 197, 64), (8, 16, 1024, 64), (4, 16, 2048, 128),
)  # fmt: skip
"""Batch, heads, rows and elements of a head."""
LAUNCHES = 20
TOLERANCE = 4e-3
"""Of half precision, relative to 1 + |value|: as tests of kernels have it."""


@dataclass(frozen=True)
class Case:
    """One kernel for one problem, in the library of its unit."""

    problem: KernelProblem
    candidate: Candidate

    @property
    def library(self) -> str:
        (unit,) = FAMILY.units([(self.problem, self.candidate)], TARGET)
        return unit.name.removesuffix(".cu")

    @property
    def entry(self) -> str:
        return f"run_{self.problem.digest[:16]}"

    @property
    def code(self) -> str:
        count = len(self.problem.inputs)
        at = StepExpressions(tuple(f"r.input({i})" for i in range(count)), ("r.output(0)",), (None,) * count)
        call = FAMILY.emit(self.problem, self.candidate, TARGET, at).call
        return (
            f'extern "C" int {self.entry}(const void* const* inputs, void* const* outputs, void* stream, int overlap)'
            " {\n"
            "  bolt::Run r{};\n  r.inputs = inputs;\n  r.outputs = outputs;\n  r.stream = stream;\n"
            f"  r.overlap = overlap != 0;\n  try {{\n    {call}\n    return 0;\n"
            "  } catch (const std::exception& error) {\n"
            '    std::fprintf(stderr, "%s\\n", error.what());\n    return 1;\n  }\n}\n'
        )


TARGET: Target = target_named("h200")


def operand(shape: tuple[int, ...]) -> Operand:
    return Operand(shape, TensorFormat(DType.F16, Layout.ROW))


def problem_of(op: Attention, shapes: list[tuple[int, ...]]) -> KernelProblem:
    inputs = tuple(map(operand, shapes))
    (output,) = op.infer([TensorType(DType.F16, shape) for shape in shapes])
    return KernelProblem(op, inputs, (operand(output.shape),), (), DType.F32, TARGET.name)


def packed(batch: int, heads: int, rows: int, depth: int) -> KernelProblem:
    return problem_of(Attention(heads, heads, depth**-0.5, packed=True), [(batch, rows, 3 * heads * depth)])


def legal(problem: KernelProblem, every: bool) -> list[Candidate]:
    """Those that are offered, or `every` legal one."""
    if not every:
        return list(FAMILY.candidates(problem, TARGET)[0])
    shape, gpu = shape_of(problem), TARGET.gpu
    assert gpu is not None
    kinds = [kind for kind in KINDS if kind.serves(shape, gpu) is None]
    return [candidate_of(tile) for kind in kinds for tile in kind.tiles(shape) if tile.refuse(shape, gpu) is None]


def compile_all(cases: list[Case], folder: Path) -> dict[str, ctypes.CDLL]:
    """A library for each unit, with an entry for each problem that it solves."""
    chain = probe(TARGET.tools)
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        raise SystemExit(" ".join(diagnostic.message for diagnostic in chain.diagnostics()))
    includes = [runtime.include_dir(), Path(cutlass).parent / "include", *(f.include_dir for f in load(TARGET))]
    flags = ["-std=c++17", *TARGET.compile_flags, "-Xcompiler", "-fPIC", "-shared", *(f"-I{path}" for path in includes)]
    flags += [f"-L{path}" for path in chain.tool("nvcc").library_dirs]
    by_library: dict[str, list[Case]] = {}
    for case in cases:
        by_library.setdefault(case.library, []).append(case)

    def compiled(name: str) -> ctypes.CDLL:
        (unit,) = FAMILY.units([(c.problem, c.candidate) for c in by_library[name][:1]], TARGET)
        entries = dict.fromkeys(case.code for case in by_library[name])
        text = "#include <cstdio>\n#include <exception>\n" + unit.text + "".join(entries)
        source, target = folder / f"{name}.cu", folder / f"{name}.so"
        if not target.exists() or source.read_text() != text:
            source.write_text(text)
            done = subprocess.run([nvcc, *flags, source, "-o", target], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{by_library[name][0].candidate}: {done.stderr[:4000]}")
        return ctypes.CDLL(str(target))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(zip(by_library, pool.map(compiled, by_library), strict=True))


def caller(case: Case, libraries: dict[str, ctypes.CDLL], inputs: list[Any], y: Any) -> Callable[[bool], None]:
    """Queues the kernel on torch's current stream."""
    import torch

    entry = getattr(libraries[case.library], case.entry)
    pointers = (ctypes.c_void_p * len(inputs))(*(x.data_ptr() for x in inputs))
    outputs = (ctypes.c_void_p * 1)(y.data_ptr())

    def call(overlap: bool = True) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if entry(pointers, outputs, stream, int(overlap)) != 0:
            raise RuntimeError(f"{case.candidate} could not be queued")

    return call


def microseconds(call: Callable[[], Any]) -> float:
    """The median of 20 replays of a graph of LAUNCHES launches, for one of them."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    for _ in range(3):
        graph.replay()
    found = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / LAUNCHES * 1e3)
    return sorted(found)[len(found) // 2]


def split(op: Attention, inputs: list[Any]) -> list[Any]:
    """Queries, keys and values as [batch, heads, rows, elements]."""
    sources = inputs[: op.sources]
    heads = (op.heads, op.kv_heads, op.kv_heads)
    if op.packed:
        depth = sources[0].shape[2] // (op.heads + 2 * op.kv_heads)
        sources = sources[0].split([count * depth for count in heads], dim=2)
    return [x.unflatten(2, (count, -1)).transpose(1, 2) for x, count in zip(sources, heads, strict=True)]


def reference(op: Attention, inputs: list[Any]) -> Any:
    """The attention in fp64, [batch, rows, heads elements]."""
    import torch

    q, k, v = (x.double() for x in split(op, inputs))
    k, v = (x.repeat_interleave(op.heads // op.kv_heads, dim=1) for x in (k, v))
    found = []
    for image in range(q.shape[0]):  # so that scores of long rows fit
        scores = q[image] @ k[image].transpose(-1, -2) * op.scale
        if len(inputs) > op.sources:
            mask = inputs[-1].double()
            mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
            scores = scores + mask[image if mask.shape[0] > 1 else 0]
        if op.causal:
            there = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~there, -math.inf)
        if op.tied:
            scores = scores.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
        shares = scores.softmax(-1)
        if op.safe:
            shares = shares.nan_to_num(0.0)
        found.append((shares @ v[image]).transpose(0, 1).flatten(1))
    return torch.stack(found)


def error(y: Any, wanted: Any) -> float:
    """The largest difference relative to the tolerance: right at most 1. NaN is right where it was wanted."""
    import torch

    a = y.double()
    excess = (a - wanted).abs() / (TOLERANCE * (1 + wanted.abs()))
    excess = torch.where(a.isnan() & wanted.isnan(), torch.zeros_like(excess), excess)
    return float(excess.nan_to_num(math.inf).max())


def peers(shape: tuple[int, ...]) -> dict[str, float | str]:
    """Microseconds of PyTorch's own."""
    import torch
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.half) for _ in range(3))
    found: dict[str, float | str] = {}
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                found[name.split("_")[0].lower()] = microseconds(
                    lambda: functional.scaled_dot_product_attention(q, k, v)
                )
        except RuntimeError as reason:
            found[name.split("_")[0].lower()] = str(reason)[:100]
    return found


def odd_problems(count: int, seed: int) -> list[Case]:
    """Random extents, heads, masks: one random legal kernel of each kind for each."""
    choose = random.Random(seed)
    found: list[Case] = []
    for _ in range(count):
        kv, group = choose.choice((1, 2, 3)), choose.choice((1, 1, 1, 2, 4))
        depth = choose.choice((32, 64, 64, 64, 80, 96, 128, 40, choose.randint(1, 200)))
        queries = choose.choice((1, 40, 197, choose.randint(1, 700)))
        is_packed = choose.random() < 0.5
        keys = queries if is_packed else choose.choice((1, 77, choose.randint(1, 900)))
        batch, heads = choose.randint(1, 3), kv * group
        op = Attention(heads, kv, depth**-0.5, choose.random() < 0.3, is_packed, choose.random() < 0.2)
        shapes: list[tuple[int, ...]] = [(batch, queries, (heads + 2 * kv) * depth)]
        if not is_packed:
            shapes = [(batch, queries, heads * depth), *[(batch, keys, kv * depth)] * 2]
        if choose.random() < 0.4:
            full = (batch, heads, queries, keys)
            shapes.append(tuple(extent if choose.random() < 0.6 else 1 for extent in full))
        problem = problem_of(op, shapes)
        kernels = legal(problem, True)
        for kind in dict.fromkeys(dict(c.parameters)["kind"] for c in kernels):
            of_kind = [c for c in kernels if dict(c.parameters)["kind"] == kind]
            found.append(Case(problem, choose.choice(of_kind)))
    return found


def check(cases: list[Case], libraries: dict[str, ctypes.CDLL]) -> list[dict[str, Any]]:
    """Which of the cases are wrong."""
    import torch

    wrong = []
    for case in cases:
        op = case.problem.op
        assert isinstance(op, Attention)
        inputs = [torch.randn(x.shape, device="cuda", dtype=torch.half) for x in case.problem.inputs]
        if len(inputs) > op.sources:
            inputs[-1].masked_fill_(torch.rand(inputs[-1].shape, device="cuda") < 0.2, -math.inf)
        y = torch.full(case.problem.outputs[0].shape, math.nan, device="cuda", dtype=torch.half)
        caller(case, libraries, inputs, y)(False)
        torch.cuda.synchronize()
        found = error(y, reference(op, inputs))
        if not found <= 1:
            shapes = [list(x.shape) for x in case.problem.inputs]
            wrong.append({"candidate": str(case.candidate), "op": str(op), "inputs": shapes, "error": found})
            print("WRONG", wrong[-1], flush=True)
    return wrong


def measured(shape: tuple[int, ...], cases: list[Case], libraries: dict[str, ctypes.CDLL]) -> dict[str, Any]:
    """Every kernel of a shape, right or not and how fast, beside PyTorch's."""
    import torch

    problem = cases[0].problem
    op = problem.op
    assert isinstance(op, Attention)
    inputs = [torch.randn(x.shape, device="cuda", dtype=torch.half) for x in problem.inputs]
    y = torch.empty(problem.outputs[0].shape, device="cuda", dtype=torch.half)
    wanted = reference(op, inputs)
    rows = []
    for case in cases:
        call = caller(case, libraries, inputs, y)
        y.fill_(math.nan)
        try:
            call()
            torch.cuda.synchronize()
        except RuntimeError as reason:
            rows.append({"candidate": str(case.candidate), "failed": str(reason)})
            continue
        predicted = FAMILY.predict(problem, case.candidate, TARGET) * 1e6
        row = {"candidate": str(case.candidate), "error": error(y, wanted), "predicted_us": predicted}
        rows.append({**row, "us": microseconds(call), "serial_us": microseconds(lambda call=call: call(False))})
    rows.sort(key=lambda row: row.get("us", math.inf))
    others = peers(shape)
    best = min(value for value in others.values() if isinstance(value, float))
    right = [row for row in rows if row.get("error", math.inf) <= 1]
    first = min(right, key=lambda row: row["predicted_us"], default=None)
    for row in rows[:3]:
        print("   ", json.dumps(row), flush=True)
    found = {"shape": shape, "peers": others, "kernels": rows, "wrong": len(rows) - len(right)}
    if right:
        found |= {"us": right[0]["us"], "ahead": best / right[0]["us"], "ahead_predicted": best / first["us"]}
        batch, heads, length, depth = shape
        found["tflops"] = 4 * batch * heads * length * length * depth / right[0]["us"] / 1e6
    print(shape, json.dumps({k: v for k, v in found.items() if k != "kernels"}), flush=True)
    return found


def main() -> int:
    global TARGET
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--result", default="attention_peers", help="the result's name")
    parser.add_argument("--folder", type=Path, help="keeps what was compiled")
    parser.add_argument(
        "--offered", action="store_true", help="the kernels that are offered alone, not every legal one"
    )
    parser.add_argument("--first", type=int, metavar="N", help="of each shape the N kernels predicted fastest")
    parser.add_argument("--checks", type=int, default=40, help="random problems that are compared with fp64")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="so many of the shapes")
    parser.add_argument("--compile-only", action="store_true", help="no GPU is needed")
    arguments = parser.parse_args()
    TARGET = target_named(arguments.target)
    begun = time.monotonic()
    seed = time.time_ns() % (1 << 31)
    timed = {}
    for shape in SHAPES[: arguments.shapes]:
        problem = packed(*shape)
        kernels = legal(problem, not arguments.offered)
        if arguments.first:
            kernels = sorted(kernels, key=lambda each: FAMILY.predict(problem, each, TARGET))[: arguments.first]
        timed[shape] = [Case(problem, each) for each in kernels]
    odd = odd_problems(arguments.checks, seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        libraries = compile_all([*(case for cases in timed.values() for case in cases), *odd], folder)
        compiled = time.monotonic() - begun
        print(f"{len(libraries)} kernels in {compiled:.0f} s", flush=True)
        if arguments.compile_only:
            return 0
        import torch

        torch.manual_seed(seed)
        wrong = check(odd, libraries)
        print(f"{len(odd)} odd problems, {len(wrong)} wrong", flush=True)
        facts = record.environment("torch", "nvidia-cuda-nvcc", "nvidia-cutlass")
        facts["command"] = facts["command"].replace(str(arguments.folder), "FOLDER")
        facts |= {"gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version(), "seed": seed}
        facts |= {"target": TARGET.name, "compile_s": compiled, "odd": len(odd), "wrong": wrong}
        shapes: list[dict[str, Any]] = []
        for shape, cases in timed.items():
            shapes.append(measured(shape, cases, libraries))
            record.write(arguments.result, facts | summary(shapes), arguments.out)  # one that is stopped keeps these
    ratios = summary(shapes)
    print(
        f"geometric mean over heads of 64: {ratios['geometric_mean_64']:.3f}, least {ratios['least_64']:.3f}",
        flush=True,
    )
    return 1 if wrong or any(found["wrong"] for found in shapes) else 0


def summary(shapes: list[dict[str, Any]]) -> dict[str, Any]:
    """What is measured of the shapes so far, and how far ahead kernels for heads of 64 elements are."""
    ratios = [found["ahead"] for found in shapes if found["shape"][3] == 64 and "ahead" in found]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0
    return {"shapes": shapes, "geometric_mean_64": mean, "least_64": min(ratios, default=0.0)}


if __name__ == "__main__":
    sys.exit(main())
