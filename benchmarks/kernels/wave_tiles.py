"""Encoders' matrix products on WGMMA in tiles of 192 rows or 160 columns beside the kernels that the recipes' locks
have and the fastest others by prediction. In fp16 with fp32 accumulation. Every kernel is compared with NumPy, then
timed from a replayed graph over buffers that exceed L2.

    python benchmarks/kernels/wave_tiles.py FOLDER --prepare     # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/wave_tiles.py FOLDER --out FILE    # on an H200: runs them, compiled or not

FOLDER keeps what was compiled. Times, measured and predicted, are us of one launch. `gain` is the time of the fastest
other kernel over that of the fastest in such tiles, `expected` the same by prediction. Products of one image or
sequence with the normalisation behind them are compared too: slices that are normalised where they are added up, beside
clusters. Locks have the times of both apart. Rows of one image or sequence that end in `single` have blocks of half a
multiprocessor as new kernels, and the fastest others by prediction beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WAVES
from bolt_build.graph.ir import EpilogueOp
from bolt_build.lockfile.reading import load_lock

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_norms import ADD, product, step_of
from gpu_products import GELU

FAMILY, TARGET = Cutlass(), gpu_harness.TARGET
WAYS = ("locked", "others", "new")


@dataclass(frozen=True)
class Encoder:
    """Rows (a batch of sequences) of so many columns, the recipe whose lock has their products, if any, and whether its
    weights of the product behind attention are transposed."""

    name: str
    batch: int
    length: int
    width: int = 768
    recipe: str | None = None
    transposed: bool = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The projections, the product behind attention, and both of the feed-forward."""

        def layer(what: str, depth: int, columns: int, behind: tuple[EpilogueOp, ...], *, by: bool = False) -> Layer:
            return product(f"{self.name} {what}", (self.batch, self.length, depth), columns, behind, by=by)

        width = self.width
        return (
            layer("projections", width, 3 * width, ()),
            layer("behind attention", width, width, ADD, by=self.transposed),
            layer("feed-forward 1", width, 4 * width, GELU),
            layer("feed-forward 2", 4 * width, width, ADD),
        )


ENCODERS = (
    Encoder("ViT-B/16 b32", 32, 197, recipe="vit_b16", transposed=True),
    Encoder("BERT-base 128 b32", 32, 128, recipe="bert_base"),
    Encoder("BERT-base 384 b32", 32, 384, recipe="bert_base_384"),
    Encoder("CLIP ViT-B/32 b64", 64, 50),
    Encoder("ViT-L/16 b32", 32, 197, 1024),
)


SINGLE = (
    Encoder("ViT-B/16 b1", 1, 197, recipe="vit_b16", transposed=True),
    Encoder("BERT-base 128 b1", 1, 128, recipe="bert_base"),
)

SLICED = tuple(
    (f"{name} b1 {what} + norm", product(f"{name} {what}", (1, length, depth), 768, ADD, by=False))
    for name, length in (("ViT-B/16", 197), ("BERT-base 128", 128))
    for what, depth in (("behind attention", 768), ("feed-forward 2", 3072))
)
"""Products of few rows, which are normalised where the slices of their depth are added up, or by a cluster."""


def sliced_trials(layer: Layer, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """`count` kernels of either kind, first by prediction; what is normalised is stored too."""
    return _normed(layer, count, {"new": is_sliced, "others": lambda each: "norm" in dict(each.parameters)})


def single_sliced_trials(layer: Layer, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """The same of slices by blocks of half a multiprocessor, beside those by whole ones."""
    ways = {
        "new": lambda each: is_sliced(each) and is_single(each),
        "others": lambda each: is_sliced(each) and not is_single(each),
    }
    return _normed(layer, count, ways)


def _normed(
    layer: Layer, count: int, ways: Mapping[str, Callable[[Candidate], bool]]
) -> list[tuple[str, gpu_harness.Trial]]:
    both, step = step_of(layer, keeps=True)
    candidates = FAMILY.candidates(step.problem, TARGET)[0]
    return [
        (way, gpu_harness.Trial(both, step, each, timed=True))
        for way, takes in ways.items()
        for each in [each for each in candidates if takes(each)][:count]
    ]


def is_sliced(candidate: Candidate) -> bool:
    """True for slices that are normalised where they are added up."""
    return "sliced_norm" in dict(candidate.parameters)


def is_single(candidate: Candidate) -> bool:
    """True for blocks that leave half of a multiprocessor to others."""
    return dict(candidate.parameters).get("warpgroups") == "single"


def locked(problem: KernelProblem, recipe: str | None) -> list[Candidate]:
    """What the recipe's lock has for the problem: the fastest alone, and the one in the whole engine."""
    if recipe is None or (part := load_lock(ROOT / "recipes" / f"{recipe}.lock").target(TARGET.name)) is None:
        return []
    found = [entry.winner for entry in part.entries if entry.problem == problem.digest]
    return found + [swap for engine in part.engines for name, swap, _ in engine.swaps if name == problem.digest]


def is_new(candidate: Candidate) -> bool:
    """True for tiles that are there to fill whole waves."""
    stated = dict(candidate.parameters)
    return "warpgroups" in stated and (stated["m"], stated["n"]) in WAVES


def of_other_sizes(candidates: list[Candidate], count: int) -> list[Candidate]:
    """The first `count` of which no two have a size and a schedule in common, and the first in clusters. Kinds whose
    tiles all have as many rows do not state them."""
    found: dict[tuple[object, ...], Candidate] = {}
    for each in candidates:
        stated = dict(each.parameters)
        found.setdefault(tuple(stated.get(name) for name in ("m", "n", "warpgroups")), each)
    sizes = list(found.values())[:count]
    return sizes + [each for each in candidates if "cluster" in dict(each.parameters)][:1]


def trials_of(
    layer: Layer, recipe: str | None, count: int, of_way: Callable[[Candidate], bool] = is_new
) -> list[tuple[str, gpu_harness.Trial]]:
    """New kernels of `count` sizes and others of as many, first by prediction, each also in clusters, and those of the
    lock."""
    graph, node = graph_with(layer)
    problem = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0].problem
    step = ProposedStep(problem, tuple(f"x{index}" for index in range(len(problem.inputs))), ("y",))
    candidates = sorted(FAMILY.candidates(problem, TARGET)[0], key=lambda each: FAMILY.predict(problem, each, TARGET))
    own = locked(problem, recipe)
    others = of_other_sizes([each for each in candidates if not of_way(each)], count)
    new = of_other_sizes([each for each in candidates if of_way(each)], count)
    ways = (("locked", own), ("others", [each for each in others if each not in own]), ("new", new))
    return [
        (way, gpu_harness.Trial(layer, step, each, timed=True)) for way, found in ways for each in dict.fromkeys(found)
    ]


def predicted(trial: gpu_harness.Trial) -> float:
    """Microseconds."""
    return FAMILY.predict(trial.step.problem, trial.candidate, TARGET) * 1e6


def main() -> int:
    parser = kernel_trials.parser(__doc__, 3, "new kernels of each product, and others")
    parser.add_argument("--only", default="", help="encoders whose name begins so")
    arguments = parser.parse_args()
    planned = [
        (layer.label, *each)
        for encoder in ENCODERS
        if encoder.name.startswith(arguments.only)
        for layer in encoder.layers
        for each in trials_of(layer, encoder.recipe, arguments.count)
    ]
    planned += [
        (name, *each)
        for name, layer in SLICED
        if name.startswith(arguments.only)
        for each in sliced_trials(layer, arguments.count)
    ]
    planned += [
        (f"{layer.label} single", *each)
        for encoder in SINGLE
        if encoder.name.startswith(arguments.only)
        for layer in encoder.layers
        for each in trials_of(layer, encoder.recipe, arguments.count, is_single)
    ]
    planned += [
        (f"{name} single", *each)
        for name, layer in SLICED
        if name.startswith(arguments.only)
        for each in single_sliced_trials(layer, arguments.count)
    ]
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    flops = {name: trial.step.problem.flops for name, _, trial in planned}
    rows = {
        name: {"gflop": flops[name] / 1e9, **row}
        for name, row in kernel_trials.measured_rows(library, planned, WAYS, predicted).items()
    }
    for row in rows.values():
        for name, field in (("gain", "us"), ("expected", "predicted")):
            old, new = best(row["locked"] + row["others"], field), best(row["new"], field)
            row[name] = None if old is None or new is None else old / new
    return kernel_trials.finish("wave_tiles", arguments, {"products": rows, "wrong": kernel_trials.wrong(rows, WAYS)})


if __name__ == "__main__":
    sys.exit(main())
