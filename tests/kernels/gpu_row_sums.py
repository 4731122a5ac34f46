"""Sums of rows: embeddings of tokens and of images, with and without the normalisation behind them."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_harness import TARGET, Trial
from gpu_products import TOLERANCE
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Graph

TABLES = """
    graph g batch=3 (%words: i64[3,{tokens}], %types: i32[3,{tokens}]) -> ({outputs}) {{
      const %w: f32[100,{row}] #
      const %p: f32[{tokens},{row}] #
      const %t: f32[2,{row}] #
      const %s: f32[{row}] #
      const %b: f32[{row}] #
      %a = gather(%w, %words) axis=0 // "a"
      %c = gather(%t, %types) axis=0 // "c"
      %e = add(%a, %c) // "e"
      %x = add(%e, %p) // "x"
      {behind}
    }}"""
NORM = 'norm(%x, %s, %b) statistic=variance axes=[2] epsilon=1e-05 // "n"'
IMAGE = """
    graph g batch=3 (%x: f32[3,{patches},{row}]) -> ({outputs}) {{
      const %k: f32[3,1,{row}] #
      const %p: f32[1,{tokens},{row}] #
      const %s: f32[{row}] #
      const %b: f32[{row}] #
      %c = concat(%k, %x) axis=1 // "c"
      %y = add(%c, %p) // "y"
      {behind}
    }}"""
IMAGE_NORM = 'norm(%y, %s, %b) statistic=variance axes=[2] epsilon=1e-06 // "n"'
ADDED = """
    graph g batch=2 (%x: f32[2,9,{row}], %y: f32[9,{row}], %v: f32[2,9,{row}]) -> (%n) {{
      const %s: f32[{row}] #
      %z = add(%x, %y, %v) | add(%v) // "z"
      %n = norm(%z, %s) statistic=rms axes=[2] epsilon=1e-06 // "n"
    }}"""
GIVEN = """
    graph g batch=3 (%words: i64[3,7], %places: i64[7]) -> (%x) {
      const %w: f32[50,40] #
      const %p: f32[9,40] #
      %a = gather(%w, %words) axis=0 // "a"
      %c = gather(%p, %places) axis=0 // "c"
      %x = add(%a, %c) // "x"
    }"""


def tokens(row: int, count: int = 7, *, kept: bool = False) -> Graph:
    outputs = "%n, %z" if kept else "%n"
    behind = f"%n = {NORM}" + ('\n      %z = tanh(%x) // "z"' if kept else "")
    return graph(TABLES.format(tokens=count, row=row, outputs=outputs, behind=behind))


def patches(row: int, count: int = 6, *, kept: bool = True) -> Graph:
    outputs = "%n, %y" if kept else "%n"
    return graph(IMAGE.format(patches=count, tokens=count + 1, row=row, outputs=outputs, behind=f"%n = {IMAGE_NORM}"))


def alone(text: str) -> Graph:
    """Sums that nothing normalises."""
    return graph(text)


GRAPHS = {
    "sum-bert": tokens(96),
    "sum-wide": tokens(1032, 5),
    "sum-gpt": tokens(768, 5, kept=True),
    "sum-many": tokens(64, 700),
    "sum-given": graph(GIVEN),
    "sum-vit": patches(200),
    "sum-clip": patches(40, kept=False),
    "sum-class": graph(IMAGE.format(patches=4, tokens=5, row=24, outputs="%y", behind="")),
    "sum-added": graph(ADDED.format(row=136)),
}


def layer_of(name: str, of: Graph, precision: DType) -> tuple[Layer, Trial]:
    family = Portable()
    (alternative,) = [
        each for node in of.nodes for each in family.propose(of, node, TARGET, precision)[0] if each.apart
    ]
    (step,) = alternative.steps
    inputs = []
    for at, operand in enumerate(step.problem.inputs):
        dtype = operand.format.dtype
        if dtype.is_float:
            inputs.append(Input(operand.shape, operand.constant))
        else:
            extent = step.problem.inputs[at - 1].shape[0]
            inputs.append(Input(operand.shape, False, -extent, extent - 0.01, dtype))
    label = name if precision is not DType.F32 else f"{name}-f32"
    layer = Layer(
        label, step.problem.op, tuple(inputs), (), precision, TOLERANCE if precision is not DType.F32 else 2e-5
    )
    (candidate,) = family.candidates(step.problem, TARGET)[0]
    return layer, Trial(layer, step, candidate)


def row_sums() -> list[Trial]:
    """Rows of a few threads, of a warp and of a block; the sum stored or not; indices from the end."""
    found = [layer_of(name, of, DType.F16)[1] for name, of in GRAPHS.items()]
    found += [layer_of(name, GRAPHS[name], DType.F32)[1] for name in ("sum-bert", "sum-vit")]
    return found + [
        Trial(each.layer, each.step, each.candidate, pair[0]) for each in found for pair in each.step.may_share
    ]
