"""What the layers of an encoder take in the vendor's kernels, at a GPU's first clocks and once its power limits them.

    python benchmarks/peers/vendor_layers.py [--out FILE] [--rows bert_large_b32 ...] [--seconds 3]

Of each encoder's layers only products with their bias (cuBLAS, fp16 with fp32 sums), attention (cuDNN) and LayerNorm
run, by PyTorch, on random inputs: no activation, no residual sum, no embedding. That is less than the layer computes.

- `apart_ms`: each kernel alone in a CUDA graph of 20 launches, the GPU idle in front of it; times by their number.
- `together_ms`: all layers in one CUDA graph, after idling: the least of the first runs.
- `sustained_ms`, `watts`: the median of the second half of so many seconds of that graph, and the power meanwhile.

So a sum of kernels that were timed alone is compared with what the GPU can keep up.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from bolt_build.bench.energy import EnergyLog, gpu_counter

LAUNCHES, IDLE, FIRST = 20, 2.0, 5
"""Launches of a kernel's graph, seconds of rest in front of it, and runs that count as the first."""


@dataclass(frozen=True)
class Row:
    """Layers alike: `batch` sequences of `tokens`, `heads` heads, `inner` elements between the two last products."""

    name: str
    layers: int
    batch: int
    tokens: int
    hidden: int
    heads: int
    inner: int

    @property
    def rows(self) -> int:
        return self.batch * self.tokens


ROWS = (
    Row("bert_base_40_b32", 12, 32, 40, 768, 12, 3072), Row("bert_base_b32", 12, 32, 128, 768, 12, 3072),
    Row("bert_base_384_b32", 12, 32, 384, 768, 12, 3072), Row("bert_large_b32", 24, 32, 384, 1024, 16, 4096),
    Row("vit_b16_b32", 12, 32, 197, 768, 12, 3072),
)  # fmt: skip


class Layer:
    """One layer's kernels, each with tensors of its own: layers do not find each other's weights in the cache."""

    def __init__(self, row: Row) -> None:
        self.row, hidden, inner = row, row.hidden, row.inner
        self.x, self.wide = _random(row.rows, hidden), _random(row.rows, inner)
        self.weights = [
            _random(columns, depth, scale=depth**-0.5)
            for columns, depth in ((3 * hidden, hidden), (hidden, hidden), (inner, hidden), (hidden, inner))
        ]
        self.biases = [_random(weight.shape[0]) for weight in self.weights]
        self.heads = [_random(row.batch, row.heads, row.tokens, hidden // row.heads) for _ in range(3)]
        self.gain, self.shift = _random(hidden), _random(hidden)

    def calls(self) -> list[tuple[str, Callable[[], Any]]]:
        """Each kernel of the layer by its name."""

        def product(which: int, x: torch.Tensor) -> Callable[[], Any]:
            return lambda: torch.nn.functional.linear(x, self.weights[which], self.biases[which])

        def attention() -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(*self.heads)

        def norm() -> Any:
            return torch.nn.functional.layer_norm(self.x, (self.row.hidden,), self.gain, self.shift)

        return [
            ("projections", product(0, self.x)), ("attention", attention), ("output", product(1, self.x)),
            ("norm", norm), ("up", product(2, self.x)), ("down", product(3, self.wide)), ("norm", norm),
        ]  # fmt: skip


def _random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16) * scale


def graph_of(calls: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    """All calls in one CUDA graph, once run outside of it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    torch.cuda.synchronize()
    return graph


def replays(graph: torch.cuda.CUDAGraph, seconds: float, least: int = FIRST) -> list[float]:
    """Milliseconds of each run, one after the other without a pause, for so long."""
    found: list[float] = []
    began = time.monotonic()
    while len(found) < least or time.monotonic() - began < seconds:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(least + 1)]
        for mark in marks[:-1]:
            mark.record()
            graph.replay()
        marks[-1].record()
        torch.cuda.synchronize()
        found += [first.elapsed_time(second) for first, second in itertools.pairwise(marks)]
    return found


def apart(layer: Layer) -> dict[str, float]:
    """Milliseconds of each kernel of a layer alone, by name."""
    found = {}
    for name, call in dict(layer.calls()).items():
        graph = graph_of([call] * LAUNCHES)
        time.sleep(IDLE / 4)
        found[name] = min(replays(graph, 0.0)) / LAUNCHES
    return found


def measured(row: Row, seconds: float) -> dict[str, Any]:
    layers = [Layer(row) for _ in range(row.layers)]
    kernels = apart(layers[0])
    total = row.layers * sum(kernels[name] for name, _ in layers[0].calls())
    graph = graph_of([call for layer in layers for _, call in layer.calls()])
    time.sleep(IDLE)
    together = min(replays(graph, 0.0))
    with EnergyLog(_counter()) as log:
        time.sleep(IDLE / 10)  # the counter is read before the first run, and behind the last
        began = time.monotonic()
        runs = replays(graph, seconds)
        ended = time.monotonic()
        time.sleep(IDLE / 10)
    joules = log.between(began, ended)
    sustained = statistics.median(runs[len(runs) // 2 :])
    return {
        "name": row.name, "kernels_ms": {name: round(ms, 5) for name, ms in kernels.items()},
        "apart_ms": round(total, 4), "together_ms": round(together, 4), "sustained_ms": round(sustained, 4),
        "watts": None if joules is None else round(joules / (ended - began), 1),
    }  # fmt: skip


def _counter() -> Any:
    counter = gpu_counter()
    if isinstance(counter, str):
        raise SystemExit(counter)
    return counter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], metavar="ROW", help="only these")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    head = record.environment("torch") | {"gpu": torch.cuda.get_device_name(), "dtype": "fp16", "accumulator": "fp32"}
    rows = []
    for row in ROWS:
        if arguments.rows is None or row.name in arguments.rows:
            rows.append(measured(row, arguments.seconds))
            print(rows[-1], flush=True)
    record.write("vendor_layers", head | {"rows": rows}, arguments.out)


if __name__ == "__main__":
    main()
