"""Graphs of two products, for tests of what computes them together."""

from __future__ import annotations

from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, TensorFormat
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp, Graph, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.chain import Kept
from bolt_build.targets import Target, target_named

H200, A100, T4 = (target_named(name) for name in ("h200", "a100", "t4"))
FAMILY = Cutlass()
RELU = EpilogueOp(Activation("relu"))
F16_LAST, F16_ROW = TensorFormat(DType.F16, Layout.CHANNELS_LAST), TensorFormat(DType.F16, Layout.ROW)
F32_ROW = TensorFormat(DType.F32, Layout.ROW)


def two(
    first: str = "strides=[2,2] pads_begin=[1,1] pads_end=[1,1]",
    second: str = "",
    *,
    x: str = "32,48,112,112",
    w: str = "48,48,3,3",
    v: str = "48,48,1,1",
    stages: tuple[str, str] = (" | relu", " | relu"),
    more: str = "",
    outputs: str = "%z",
) -> Graph:
    """A convolution `a` and what reads it, a 1x1 convolution `b`."""
    n0, n1 = w.split(",")[0], v.split(",")[0]
    return graph(f"""
        graph g batch=32 (%x: f32[{x}]) -> ({outputs}) {{
          const %w: f32[{w}] #
          const %b: f32[{n0}] #
          const %v: f32[{v}] #
          const %c: f32[{n1}] #
          %y = conv(%x, %w, %b) {first}{stages[0]} // "a"
          %z = conv(%y, %v, %c) {second}{stages[1]} // "b"
          {more}
        }}""")


def proposed(of: Graph, target: Target = H200) -> tuple[list[Alternative], list[tuple[str, str]]]:
    """What is proposed of several products, and why more is not."""
    found, refusals = FAMILY.propose(of, of.nodes[0], target, DType.F16)
    found = tuple(each for each in found if not any(isinstance(step.problem.op, Kept) for step in each.steps))
    about = [(each.what, each.reason) for each in refusals if "," in each.what]
    return [each for each in found if len(each.region) > 1], about


def problem(of: Graph | None = None) -> KernelProblem:
    (alternative,), _ = proposed(of or two())
    return alternative.steps[0].problem
