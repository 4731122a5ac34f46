"""Forms of kernels beside the other kernels for the same layers, on one GPU: convolutions whose taps share a band of
the images, recurrent layers on tensor cores, and two products that gate each other as one kernel. In fp16 with fp32
accumulation. All kernels of a layer agree; times are of a replayed graph over buffers that exceed L2.

    python benchmarks/kernels/kernel_forms.py FOLDER --prepare     # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/kernel_forms.py FOLDER --out FILE    # on a GPU: runs them, compiled or not

FOLDER keeps what was compiled. `BOLT_GPU_TARGET=h100` names the GPU that predictions are of. Of each layer the first
kernels by prediction are timed, of the form and of all others. Times, measured and predicted, are us of one launch.
`gain` is the time of the fastest other over that of the fastest of the form; both products count for a gate's others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, ProposedStep

sys.path[:0] = map(str, TESTS)

import gpu_gated
import gpu_harness
from families_harness import Layer, graph_with
from gpu_attention_layers import attention, packed
from gpu_norms import product
from gpu_products import SILU, conv
from recurrent_kernels import recurrent

TARGET = gpu_harness.TARGET
FAMILIES = {family.name: family for family in load(TARGET)}
WAYS = ("form", "others", "second")
BOTH = (False, True)


@dataclass(frozen=True)
class Compared:
    """A layer, the families that have kernels for it, and which of these are of the form."""

    group: str
    layer: Layer
    families: tuple[str, ...]
    of_form: Callable[[Candidate], bool]


def _band(name: str, x: tuple[int, ...], filters: int, window: tuple[int, int], **more: Any) -> Compared:
    families = ("cutlass", "grouped") if "groups" in more else ("cutlass",)
    layer = conv(name, x, filters, window, **more)
    return Compared("bands", layer, families, lambda each: "bands" in dict(each.parameters))


def _recurrent(name: str, kind: str, functions: str, *of: Any, **more: Any) -> Compared:
    layer = replace(recurrent(name, kind, functions, *of, **more), precision=DType.F16, tolerance=5e-3)
    return Compared("recurrent", layer, ("portable",), lambda each: ("algorithm", "tensor_cores") in each.parameters)


def _attention(layer: Layer) -> Compared:
    return Compared("attention", layer, ("attention",), lambda each: ("kind", "persistent") in each.parameters)


LSTM = ("lstm", "sigmoid tanh tanh")
COMPARED = (
    _band("73x73 3x3 80 to 192", (32, 80, 73, 73), 192, (3, 3), pads=((0, 0), (0, 0))),
    _band("17x17 1x7 160", (32, 160, 17, 17), 160, (1, 7)),
    _band("17x17 7x1 192", (32, 192, 17, 17), 192, (7, 1)),
    _band("35x35 3x3 96", (32, 96, 35, 35), 96, (3, 3)),
    _band("35x35 5x5 48 to 64", (32, 48, 35, 35), 64, (5, 5)),
    _band("14x14 3x3 160 to 320", (32, 160, 14, 14), 320, (3, 3)),
    _band("28x28 3x3 128", (32, 128, 28, 28), 128, (3, 3)),
    _band("14x14 3x3 256", (32, 256, 14, 14), 256, (3, 3)),
    _band("7x7 3x3 512", (32, 512, 7, 7), 512, (3, 3)),
    _band("14x14 3x3 1024 in groups of 32", (32, 1024, 14, 14), 1024, (3, 3), groups=32),
    _band("28x28 3x3 512 in groups of 16", (32, 512, 28, 28), 512, (3, 3), groups=32),
    _band("56x56 3x3 256 in groups of 8", (32, 256, 56, 56), 256, (3, 3), groups=32),
    _band("28x28 3x3 128 to 256 in 2 groups", (32, 128, 28, 28), 256, (3, 3), groups=2),
    _recurrent("LSTM 256, both ways, 33 steps, batch 1", *LSTM, 33, 1, 256, BOTH),
    _recurrent("LSTM 256, both ways, 33 steps, batch 32", *LSTM, 33, 32, 256, BOTH),
    _recurrent("LSTM 48, both ways, 32 steps, batch 256", *LSTM, 32, 256, 48, BOTH),
    _recurrent("LSTM 512, 75 steps, batch 1", *LSTM, 75, 1, 512),
    _attention(packed("8 x 16 x 1024 x 64", 8, 16, 1024, 64)),
    _attention(packed("32 x 16 x 384 x 64", 32, 16, 384, 64)),
    _attention(packed("32 x 12 x 512 x 64", 32, 12, 512, 64)),
    _attention(packed("32 x 12 x 197 x 64", 32, 12, 197, 64)),
    _attention(packed("32 x 12 x 128 x 64", 32, 12, 128, 64)),
    _attention(packed("4 x 16 x 2048 x 128", 4, 16, 2048, 128)),
    _attention(packed("8 x 16 x 1024 x 80", 8, 16, 1024, 80)),
    _attention(attention("2 x 32 x 2048 x 128, causal", (2, 32, 2048, 2048), 128, kv_heads=8, causal=True)),
    _attention(attention("8 x 12 x 1024 x 64, causal", (8, 12, 1024, 1024), 64, causal=True)),
)
GATED = (
    ("Llama 1B 4 x 512", (4, 512, 2048), 8192),
    ("Qwen3 0.6B 8 x 512", (8, 512, 1024), 3072),
    ("Mistral-like 2 x 512", (2, 512, 4096), 14336),
)
"""Rows and depth of feed-forwards with SwiGLU, and their columns."""


def first_kernels(layer: Layer, families: Sequence[str], count: int) -> Iterator[tuple[ProposedStep, Candidate]]:
    """The first `count` of each family by prediction, of a size and a schedule each."""
    graph, node = graph_with(layer)
    for name in families:
        family = FAMILIES[name]
        step = family.propose(graph, node, TARGET, layer.precision)[0][0].steps[0]
        offered = sorted(
            family.candidates(step.problem, TARGET)[0], key=lambda each: family.predict(step.problem, each, TARGET)
        )
        yield from ((step, each) for each in offered[:count])


def compared(each: Compared, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    found: dict[str, list[tuple[str, gpu_harness.Trial]]] = {"others": [], "form": []}
    for step, candidate in first_kernels(each.layer, each.families, 10_000):
        way = "form" if each.of_form(candidate) else "others"
        if len(found[way]) < count:
            found[way].append((way, gpu_harness.Trial(each.layer, step, candidate, large=True, timed=True)))
    return found["others"] + found["form"]


def gated(name: str, rows: tuple[int, ...], columns: int, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """Both products apart, the second without the factor that it would read, and the gate as one kernel."""
    one = gpu_gated.gated(name, gpu_gated.ROWS, rows, columns, SILU, ())
    found = []
    for way, behind in (("others", SILU), ("second", ())):
        layer = product(f"{name} {way}", rows, columns, behind)
        for step, candidate in first_kernels(layer, ("cutlass",), count):
            found.append((way, gpu_harness.Trial(layer, step, candidate, large=True, timed=True)))
    step = gpu_gated.step_of(one)
    family = FAMILIES["cutlass"]
    offered = sorted(
        family.candidates(step.problem, TARGET)[0], key=lambda each: family.predict(step.problem, each, TARGET)
    )
    return found + [("form", gpu_harness.Trial(one, step, each, large=True, timed=True)) for each in offered[:count]]


def linked(planned: list[kernel_trials.Planned]) -> list[kernel_trials.Planned]:
    """Each kernel compared with the first of its layer."""
    first: dict[str, int] = {}
    return [
        (name, way, replace(trial, reference=None if at == index else at))
        for index, (name, way, trial) in enumerate(planned)
        for at in [first.setdefault(trial.layer.label, index)]
    ]


def predicted(trial: gpu_harness.Trial) -> float:
    """Microseconds."""
    family = FAMILIES[trial.candidate.family]
    return family.predict(trial.step.problem, trial.candidate, TARGET) * 1e6


def completed(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The result of rows: their groups and gains are added."""
    groups = {each.layer.label: each.group for each in COMPARED}
    names = [*groups, *(name for name, *_ in GATED)]
    for name, row in rows.items():
        row["group"] = groups.get(name, "gated")
        new, old, beside = (best(row[way]) for way in WAYS)
        row["gain"] = None if new is None or old is None else (old + (beside or 0.0)) / new
    ordered = {name: rows[name] for name in names if name in rows}
    return {"layers": ordered, "wrong": kernel_trials.wrong(rows, WAYS)}


def main() -> int:
    parser = kernel_trials.parser(__doc__, 3, "kernels of the form of each layer, and others")
    arguments = parser.parse_args()
    planned = [(each.layer.label, *trial) for each in COMPARED for trial in compared(each, arguments.count)]
    planned += [(name, *trial) for name, *of in GATED for trial in gated(name, *of, arguments.count)]
    planned = linked(planned)
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    rows: dict[str, dict[str, Any]] = kernel_trials.measured_rows(library, planned, WAYS, predicted)
    return kernel_trials.finish("kernel_forms", arguments, completed(rows))


if __name__ == "__main__":
    sys.exit(main())
