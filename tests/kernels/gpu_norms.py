"""Matrix products whose rows are normalised in the same kernel: every number of tiles in a row, ragged rows, more tiles
than clusters, by variance and by the mean of squares, with what is normalised kept or not."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer, graph_with
from families_layers import RELU, stage
from gpu_harness import TARGET, Trial
from gpu_products import GELU, matmul

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.chains import chained, kept
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.norms.norm import Norm

FAMILY = Cutlass()
ADD = (stage("add", 3),)


def product(
    label: str, a: tuple[int, ...], columns: int, epilogue: tuple[EpilogueOp, ...], *, by: bool = True
) -> Layer:
    """A matrix product, and the tensor that its epilogue adds."""
    layer = matmul(label, a, columns, by, epilogue)
    added = tuple(Input((*a[:-1], columns)) for each in epilogue if each.operand is not None)
    return replace(layer, inputs=(*layer.inputs, *added))


def step_of(
    first: Layer, *, statistic: str = "variance", keeps: bool = False, bias: bool = True,
    behind: tuple[EpilogueOp, ...] = (),
) -> tuple[Layer, ProposedStep]:  # fmt: skip
    """The product of a layer and the normalisation of its rows as one step, and as one layer. Stages behind that may
    add the last input."""
    graph, node = graph_with(first)
    alone = FAMILY.propose(graph, node, TARGET, first.precision)[0][0].steps[0].problem
    (y,) = alone.outputs
    vector = Operand(y.shape[-1:], TensorFormat(DType.F32, Layout.ROW), constant=True)
    op = Norm(statistic, (len(y.shape) - 1,), 1e-5)
    inputs = (y, vector, *((vector,) if bias else ()))
    joined = (y,) if any(each.operand is not None for each in behind) else ()
    stages = tuple(each if each.operand is None else replace(each, operand=len(inputs)) for each in behind)
    norm = KernelProblem(op, (*inputs, *joined), (y,), stages, DType.F32, TARGET.name)
    both = kept(alone, norm) if keeps else chained(alone, norm)
    names = tuple(f"x{index}" for index in range(len(both.inputs)))
    step = ProposedStep(both, names, ("k", "y") if keeps else ("y",))
    label = f"{first.label}+{statistic}{'-kept' if keeps else ''}{'' if bias else '-unbiased'}"
    more = (*(Input(vector.shape, True) for _ in inputs[1:]), *(Input(each.shape) for each in joined))
    return replace(first, label=label, op=both.op, epilogue=both.epilogue, inputs=(*first.inputs, *more)), step


LAYERS = (
    (step_of(product("norm-768", (3, 50, 96), 768, ADD)), ((8, "pingpong"), (4, "cooperative"))),
    (
        step_of(product("norm-768-deep", (1, 130, 328), 768, ADD, by=False), keeps=True),
        ((4, "pingpong"), (4, "cooperative")),
    ),
    (
        step_of(product("norm-1024", (2, 67, 72), 1024, ()), statistic="rms", bias=False),
        ((8, "pingpong"), (4, "cooperative")),
    ),
    (
        step_of(product("norm-384", (300, 64), 384, GELU), keeps=True, statistic="rms", bias=False),
        ((4, "pingpong"), (2, "cooperative")),
    ),
    (step_of(product("norm-128", (5, 33, 40), 128, ADD)), ((1, "pingpong"), (2, "cooperative"))),
    (
        step_of(product("norm-256-behind", (2, 131, 72), 256, ()), behind=ADD),
        ((4, "pingpong"), (1, "cooperative")),
    ),
    (
        step_of(product("norm-512-many", (1, 4500, 64), 512, ADD), keeps=True),
        ((4, "pingpong"), (2, "pingpong"), (4, "cooperative")),
    ),
)
"""And how many tiles make a row, and in what turns, of the kernels in clusters that are tried: of each the first by
prediction."""

THROUGH_MEMORY = (
    (
        step_of(product("memory-norm-768", (10, 131, 200), 768, ADD, by=False), keeps=True),
        {"m": 192, "n": 192, "warpgroups": "cooperative"},
    ),
    (
        step_of(product("memory-norm-384", (5, 67, 96), 384, GELU), statistic="rms", bias=False),
        {"m": 128, "n": 128, "warpgroups": "pingpong"},
    ),
    (step_of(product("memory-norm-512", (300, 72), 512, ADD)), {"m": 256, "n": 128, "warpgroups": "cooperative"}),
    (
        step_of(product("memory-norm-behind", (3, 131, 72), 512, (), by=False), behind=(*ADD, RELU), statistic="rms"),
        {"m": 128, "n": 128, "warpgroups": "pingpong"},
    ),
    (
        step_of(product("ahead-norm-768", (10, 131, 136), 768, ADD, by=False)),
        {"m": 128, "n": 192, "warpgroups": "pingpong", "cluster": "2x1", "residual": "whole"},
    ),
    (
        step_of(product("ahead-norm-512", (6, 131, 72), 512, ADD), statistic="rms", bias=False),
        {"m": 64, "n": 128, "warpgroups": "pingpong", "residual": "whole"},
    ),
    (
        step_of(product("ahead-norm-384-kept", (5, 131, 136), 384, ADD, by=False), keeps=True),
        {"m": 192, "n": 192, "warpgroups": "cooperative", "residual": "whole"},
    ),
    (
        step_of(product("ahead-norm-behind", (7, 131, 72), 768, (), by=False), behind=(*ADD, RELU), statistic="rms"),
        {"m": 128, "n": 192, "warpgroups": "pingpong", "cluster": "1x2", "residual": "whole"},
    ),
)
"""Of kernels whose blocks exchange through memory, some with a tile's residual ahead. Their rows are no whole tiles."""


SLICED = (
    step_of(product("sliced-norm-768", (1, 37, 3072), 768, ADD), keeps=True),
    step_of(product("sliced-norm-1160", (2, 19, 1024), 1160, GELU, by=False), statistic="rms", bias=False),
    step_of(product("sliced-norm-384", (130, 1536), 384, ())),
)
"""Few rows of products so deep that they are computed in slices, which what adds them up normalises."""


def sliced_norm_trials() -> list[Trial]:
    """The first by prediction, in every number of slices."""
    found = []
    for layer, step in SLICED:
        candidates = FAMILY.candidates(step.problem, TARGET)[0]
        first = next(each for each in candidates if "sliced_norm" in dict(each.parameters))
        found += [Trial(layer, step, each) for each in (first, *FAMILY.variants(step.problem, first, TARGET))]
    return found


def norm_trials() -> list[Trial]:
    found = []
    for (layer, step), wanted in LAYERS:
        candidates = FAMILY.candidates(step.problem, TARGET)[0]
        for across, turns in wanted:
            named = {"norm": across, "warpgroups": turns}
            first = next(
                each
                for each in candidates
                if named.items() <= dict(each.parameters).items() and "through" not in dict(each.parameters)
            )
            found.append(Trial(layer, step, first))
    return found + memory_norm_trials()


def memory_norm_trials() -> list[Trial]:
    """Twice in a row: the second finds the counters as the first has left them."""
    found = []
    for (layer, step), tile in THROUGH_MEMORY:
        candidates = FAMILY.candidates(step.problem, TARGET)[0]
        named = {"norm": step.problem.outputs[0].shape[-1] // int(tile["n"]), "k": 64, "through": "memory", **tile}
        first = next(each for each in candidates if dict(each.parameters) == named)
        found.append(Trial(layer, step, first, launches=2))
    return found
