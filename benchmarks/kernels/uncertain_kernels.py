"""Kernels whose predicted times are least certain, several for each problem: large depthwise windows; attention with
long heads, windows, caps and masks; poolings with what follows them; narrow parts that are joined; windows of one row
or column; normalisations of images; and products that are kept beside an activation, shuffled or gated. Problems are
drawn; each kernel is timed from a replayed graph over buffers that exceed L2, and compared with the first of its
problem. In fp16.

    python benchmarks/kernels/uncertain_kernels.py FOLDER --prepare     # anywhere with nvcc: compiles the kernels
    python benchmarks/kernels/uncertain_kernels.py FOLDER --out FILE    # on an H200: runs them

Of a problem there are `--count` kernels: the first by prediction, the first of each other form that is predicted to
take at most half as long again, and those that follow the first. `--seed` draws other problems, `--problems` so many of
each class, `--only` those of some classes. FOLDER keeps what was compiled. Times are us. `planning/kernel_times.py`
gathers what is committed of it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import chain_kernels, kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate, Family, KernelProblem, ProposedStep
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.problem_text import describe_problem

sys.path[:0] = map(str, TESTS)

import gpu_attention_layers
import gpu_gated
import gpu_harness
import gpu_kept
import gpu_pairs
import gpu_shuffles
from families_harness import Input, Layer, graph_with
from families_layers import stage
from gpu_pools import pooled, windows
from gpu_products import GELU, RELU, RESIDUAL, SILU, TOLERANCE, conv

TARGET = gpu_harness.TARGET
FAMILIES: dict[str, Family] = {family.name: family for family in load(TARGET)}
WAY = "kernels"
_WITHIN = 1.5
"""How many times as long as the first kernel one of another form may be predicted to take."""
Drawn = tuple[Layer, ProposedStep]
_AFTER = ((), (RELU,), SILU)
"""What follows a convolution."""


@dataclass(frozen=True)
class Class:
    """Problems whose predictions are uncertain alike, and the family whose kernels are timed."""

    name: str
    family: str
    draw: Callable[[random.Random, str], Drawn]


def alone(family: str, layer: Layer, layout: Layout = Layout.CHANNELS_LAST) -> Drawn:
    """The layer as one step between tensors of a layout."""
    graph, node = graph_with(layer)
    for alternative in FAMILIES[family].propose(graph, node, TARGET, layer.precision)[0]:
        (step,) = alternative.steps
        ends = (step.problem.inputs[0].format, step.problem.outputs[0].format)
        if all(end.dtype is layer.precision and end.layout is layout for end in ends):
            return layer, step
    raise AssertionError(f"{family} offers {layer.label} in no step between {layout.value} tensors")


def depthwise(choose: random.Random, label: str) -> Drawn:
    window, stride, extent = choose.choice((5, 7, 9, 11, 13)), choose.choice((1, 2)), choose.choice((7, 14, 28, 56))
    channels = choose.choice((48, 80, 96, 144, 192, 300)) * (2 if extent <= 14 else 1)
    x, after = (choose.choice((8, 32)), channels, extent * stride, extent * stride), choose.choice(_AFTER)
    layer = conv(label, x, channels, (window, window), stride, groups=channels, epilogue=after)
    graph, node = graph_with(layer)
    return layer, FAMILIES["grouped"].propose(graph, node, TARGET, DType.F16)[0][0].steps[0]


def attention(choose: random.Random, label: str) -> Drawn:
    depth, rows, heads = choose.choice((32, 64, 96, 128, 192, 256)), choose.choice((196, 256, 512, 1024)), 8
    batch = max(1, 2048 // rows)
    bound = choose.choice(("none", "causal", "window", "cap", "mask", "keys"))
    shape = {"mask": (batch, heads, rows, rows), "keys": (batch, 1, 1, rows)}.get(bound)
    layer = gpu_attention_layers.attention(
        label, (batch, heads, rows, rows), depth, kv_heads=choose.choice((heads, heads // 2)),
        causal=bound in ("causal", "window", "cap"), window=rows // 4 if bound == "window" else 0,
        cap=30.0 if bound == "cap" else 0.0, mask=None if shape is None else Input(shape, low=-2.0, high=0.0),
    )  # fmt: skip
    return layer, gpu_attention_layers.step_of(layer)


def pooling(choose: random.Random, label: str) -> Drawn:
    mode, cells, stride = choose.choice(("average", "max")), choose.choice((2, 3, 5)), choose.choice((1, 2))
    extent, channels = choose.choice(((56, 64), (28, 128), (28, 96), (14, 256), (14, 320)))
    image = (32, channels, extent, extent)
    op = windows(mode, cells, stride, (cells - 1) // 2)
    out = (32, channels, *((extent + 2 * ((cells - 1) // 2) - cells) // stride + 1 for _ in range(2)))
    behind = choose.choice((0, 1, 2))
    stages = tuple(stage(function, 1 + at) for at, function in enumerate(("sub", "add")[:behind]))
    return alone("portable", pooled(label, op, *image, epilogue=stages, operands=(Input(out),) * behind))


def join(choose: random.Random, label: str) -> Drawn:
    extent, parts = choose.choice((7, 14, 28, 56)), choose.choice((2, 3, 4))
    shapes = [(32, choose.choice((10, 30, 42, 90, 180, 300)), extent, extent) for _ in range(parts)]
    return alone("portable", Layer(label, Concat(1), tuple(map(Input, shapes)), (), DType.F16, TOLERANCE))


def line(choose: random.Random, label: str) -> Drawn:
    taps, extent = choose.choice((3, 5, 7, 9)), choose.choice((17, 35, 28))
    channels, filters = choose.choice((64, 128, 160, 192)), choose.choice((96, 160, 192, 256))
    window = choose.choice(((1, taps), (taps, 1)))
    return alone("cutlass", conv(label, (32, channels, extent, extent), filters, window, epilogue=(RELU,)))


def norm(choose: random.Random, label: str) -> Drawn:
    channels, extent = choose.choice(((32, 112), (64, 56), (128, 28), (96, 56), (320, 14), (512, 7)))
    groups, batch = choose.choice((1, 1, 4, 8)), choose.choice((8, 32))
    scale = Input((channels, 1, 1), constant=True)
    op = Norm("variance", (1, 2, 3), 1e-5, groups)
    layer = Layer(label, op, (Input((batch, channels, extent, extent)), scale, scale), (), DType.F16, TOLERANCE)
    return alone("portable", layer)


def _image(choose: random.Random, label: str, epilogue: tuple[EpilogueOp, ...] = (), multiple: int = 1) -> Layer:
    """A convolution of one tap or nine."""
    taps, (channels, extent) = choose.choice((1, 3)), choose.choice(((64, 56), (128, 28), (256, 14), (40, 56)))
    filters = channels * choose.choice((1, 2)) * multiple
    return conv(label, (choose.choice((8, 32)), channels, extent, extent), filters, (taps, taps), epilogue=epilogue)


def kept(choose: random.Random, label: str) -> Drawn:
    return gpu_kept.with_activation(_image(choose, label, choose.choice(((), RESIDUAL))), gpu_kept.SILU)


def shuffled(choose: random.Random, label: str) -> Drawn:
    layer = gpu_shuffles.shuffled(_image(choose, label, choose.choice(_AFTER), 4), (2, 2))
    return layer, gpu_pairs.steps_of(layer)[0]


def gated(choose: random.Random, label: str) -> Drawn:
    rows, columns = choose.choice((512, 2048, 8192)), choose.choice((384, 768, 1024, 1536, 3072))
    depth, first = choose.choice((256, 512, 768, 1024)), choose.choice((SILU, GELU, gpu_gated.SIGMOID))
    layer = gpu_gated.gated(label, gpu_gated.MatMul(), (rows, depth), columns, first, joint=choose.random() < 0.5)
    return layer, gpu_gated.step_of(layer)


CLASSES = (
    Class("depthwise", "grouped", depthwise), Class("attention", "attention", attention),
    Class("pooling", "portable", pooling), Class("join", "portable", join), Class("line", "cutlass", line),
    Class("norm", "portable", norm), Class("kept", "cutlass", kept), Class("shuffled", "cutlass", shuffled),
    Class("gated", "cutlass", gated),
)  # fmt: skip


def form_of(candidate: Candidate) -> tuple[str, ...]:
    """What kind of kernel it is: its words, and of what it states numbers; wherever clusters share loads."""
    stated = ((name, value) for name, value in (*candidate.parameters, *candidate.settings) if name != "cluster")
    return tuple(f"{name}={value}" if isinstance(value, str) else name for name, value in stated)


def chosen(problem: KernelProblem, family: Family, count: int) -> list[Candidate]:
    """Of the family's kernels those to be timed, the first by prediction first."""
    us = {each: predicted(problem, each) for each in family.candidates(problem, TARGET)[0]}
    ordered = sorted(us, key=lambda each: (us[each], str(each)))
    forms: dict[object, Candidate] = {}
    for each in (each for each in ordered if us[each] <= _WITHIN * us[ordered[0]]):
        forms.setdefault(form_of(each), each)
    return list(dict.fromkeys((*forms.values(), *ordered)))[:count]


@cache
def drawn(seed: int, problems: int) -> tuple[tuple[Class, Drawn], ...]:
    """So many problems of each class, each once; a class draws the same whatever others there are."""
    found = []
    for of in CLASSES:
        choose, seen = random.Random(f"{seed} {of.name}"), set[str]()
        for number in range(problems):
            layer, step = of.draw(choose, f"{of.name}-{seed}-{number}")
            if step.problem.digest not in seen:
                seen.add(step.problem.digest)
                found.append((of, (layer, step)))
    return tuple(found)


def planned(seed: int, problems: int, count: int, only: Sequence[str] = ()) -> Iterator[kernel_trials.Planned]:
    """Kernels one behind the other, those of a problem referring to its first."""
    at = 0
    for of, (layer, step) in drawn(seed, problems):
        if only and of.name not in only:
            continue
        first = at
        for each in chosen(step.problem, FAMILIES[of.family], count):
            trial = gpu_harness.Trial(layer, step, each, large=True, timed=True)
            yield layer.label, WAY, trial if at == first else replace(trial, reference=first)
            at += 1


def predicted(problem: KernelProblem, candidate: Candidate) -> float:
    """In us."""
    return 1e6 * FAMILIES[candidate.family].predict(problem, candidate, TARGET)


def completed(rows: kernel_trials.Rows, problems: dict[str, KernelProblem]) -> kernel_trials.Rows:
    """With what each problem is, and how many times as long as the fastest kernel the first by prediction takes."""
    found: kernel_trials.Rows = {}
    for name, row in rows.items():
        least, first = best(row[WAY]), row[WAY][0]["us"]
        regret = None if least is None or first is None else first / least
        what = {"problem": problems[name].digest, "what": describe_problem(problems[name])}
        found[name] = {**what, WAY: row[WAY], "regret": regret}
    return found


def main() -> int:
    parser = kernel_trials.parser(__doc__, 4, "kernels of each problem")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--problems", type=int, default=5, help="problems of each class")
    parser.add_argument("--only", nargs="+", default=[], choices=[of.name for of in CLASSES])
    parser.add_argument("--seconds", type=float, default=70, help="after these no more problems are begun")
    arguments = parser.parse_args()
    plan = list(planned(arguments.seed, arguments.problems, arguments.count, arguments.only))
    if kernel_trials.library(arguments, [trial for *_, trial in plan]) is None:
        return 0
    library = chain_kernels.Library(arguments.folder)
    rows = kernel_trials.measured_rows(
        library, plan, (WAY,), lambda trial: predicted(trial.step.problem, trial.candidate), arguments.seconds
    )
    shapes = completed(rows, {name: trial.step.problem for name, _, trial in plan})
    wrong = kernel_trials.wrong(rows, (WAY,))
    return kernel_trials.finish(
        "uncertain_kernels", arguments, {"seed": arguments.seed, "shapes": shapes, "wrong": wrong}
    )


if __name__ == "__main__":
    sys.exit(main())
