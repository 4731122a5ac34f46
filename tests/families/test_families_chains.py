"""The problem of two products in one kernel: what it computes, what it is made of, and how it is described."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_graphs import (
    F16_LAST,
    F16_ROW,
    FAMILY,
    H200,
    RELU,
    problem,
    proposed,
)
from planner_checks import graph

from bolt_build.digest import decode, encode
from bolt_build.dtypes import DType
from bolt_build.emit.text import problem_text
from bolt_build.families.base import KernelProblem, Operand
from bolt_build.families.common.chains import chained, parts
from bolt_build.families.common.problems import op_operands
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, EpilogueOp, Member, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.chain import Chain
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.problem_text import describe_problem
from bolt_build.report.explained.problem_words import in_words

# The operator.


def test_a_chain_infers_what_the_second_product_leaves() -> None:
    op = Chain(Conv((2, 2), (1, 1), (1, 1), (1, 1)), 2, (RELU,), Conv((1, 1), (0, 0), (0, 0), (1, 1)))
    shapes = ((2, 8, 9, 9), (6, 8, 3, 3), (4, 6, 1, 1), (4,))
    assert op.infer([TensorType(DType.F16, shape) for shape in shapes]) == (TensorType(DType.F16, (2, 4, 5, 5)),)
    wrong = ((2, 8, 9, 9), (6, 8, 3, 3), (4, 5, 1, 1))
    with pytest.raises(ShapeError, match="the input has 6 channels"):
        op.infer([TensorType(DType.F16, shape) for shape in wrong])


def test_stages_between_read_inputs_of_the_first() -> None:
    """x * scale + shift, rounded to the type of the weights, which are the second's; and then the product."""
    point = Conv((1, 1), (0, 0), (0, 0), (1, 1))
    op = Chain(Binary("mul"), 3, (EpilogueOp(Binary("add"), 2), RELU), point)
    shapes = ((2, 3, 4, 5), (3, 1, 1), (3, 1, 1), (6, 3, 1, 1))
    assert op.infer([TensorType(DType.F16, shape) for shape in shapes]) == (TensorType(DType.F16, (2, 6, 4, 5)),)
    random = np.random.RandomState(7)
    types = (np.float16, np.float32, np.float32, np.float16)
    x, scale, shift, w = (random.uniform(-2, 2, s).astype(t) for s, t in zip(shapes, types, strict=True))
    inner = np.maximum(x.astype(np.float32) * scale + shift, 0).astype(np.float16)
    (expected,) = point.evaluate([inner.astype(np.float32), w.astype(np.float32)])
    np.testing.assert_array_equal(op.evaluate([x, scale, shift, w])[0], expected.astype(np.float16))


def rounded_between(given: KernelProblem, arrays: list[Array]) -> Array:
    """Both operators one behind the other, what lies between rounded to half precision once."""
    first, second = parts(given)
    count = len(first.inputs)
    (value,) = first.op.evaluate([widened(array) for array in arrays[:count]])
    for stage in first.epilogue:
        (value,) = stage.op.evaluate([value])
    between = narrowed(value, np.dtype(np.float16))
    (result,) = second.op.evaluate([widened(between), *map(widened, arrays[count:])])
    return narrowed(result, np.dtype(np.float16))


EXTENTS = st.integers(1, 9)


@given(
    image=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(3, 9), st.integers(3, 9)),
    widths=st.tuples(EXTENTS, EXTENTS),
    kernel=st.sampled_from([(1, 1), (3, 3), (2, 3)]),
    stride=st.integers(1, 2),
    biases=st.tuples(st.booleans(), st.booleans()),
    activation=st.sampled_from([(), (RELU,), (EpilogueOp(Activation("silu")),)]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_a_chain_of_convolutions_is_both_with_a_rounding_between(
    image: tuple[int, ...],
    widths: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    biases: tuple[bool, bool],
    activation: tuple[EpilogueOp, ...],
    seed: int,
) -> None:
    shapes = [image, (widths[0], image[1], *kernel), *([(widths[0],)] * biases[0])]
    count = len(shapes)
    shapes += [(widths[1], widths[0], 1, 1), *([(widths[1],)] * biases[1])]
    op = Chain(Conv((stride,) * 2, (1, 1), (1, 0), (1, 1)), count, activation, Conv((1, 1), (0, 0), (0, 0), (1, 1)))
    check_chain(op, shapes, seed)


@given(
    sizes=st.tuples(EXTENTS, EXTENTS, EXTENTS, EXTENTS),
    transposed=st.tuples(st.booleans(), st.booleans()),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_chain_of_matrix_products_is_both_with_a_rounding_between(
    sizes: tuple[int, int, int, int], transposed: tuple[bool, bool], bias: bool, seed: int
) -> None:
    m, k, n0, n1 = sizes
    shapes: list[tuple[int, ...]] = [(m, k), (n0, k) if transposed[0] else (k, n0), *([(n0,)] * bias)]
    count = len(shapes)
    shapes.append((n1, n0) if transposed[1] else (n0, n1))
    check_chain(Chain(MatMul(False, transposed[0]), count, (RELU,), MatMul(False, transposed[1])), shapes, seed)


def check_chain(op: Chain, shapes: list[tuple[int, ...]], seed: int) -> None:
    random = np.random.default_rng(seed)
    arrays: list[Array] = [random.normal(size=shape).astype(np.float16) for shape in shapes]
    types = [TensorType(DType.F16, shape) for shape in shapes]
    (output,) = op.infer(types)
    format = F16_LAST if output.rank > 2 else F16_ROW
    operands = tuple(Operand(t.shape, format if index == 0 else F16_ROW, index > 0) for index, t in enumerate(types))
    given_problem = KernelProblem(op, operands, (Operand(output.shape, format),), (), DType.F32, "h200")
    (found,) = op.evaluate(arrays)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, rounded_between(given_problem, arrays))
    first, second = parts(given_problem)
    assert given_problem.flops == first.flops + second.flops
    assert chained(first, second) == given_problem
    assert decode(KernelProblem, encode(given_problem)) == given_problem


# The problem.


def test_a_chained_problem_is_made_of_both_and_taken_apart_again() -> None:
    residual = graph("""
        graph g batch=2 (%x: f32[2,64,9,9], %r: f32[2,256,9,9]) -> (%z) {
          const %w: f32[64,64,3,3] #
          const %v: f32[256,64,1,1] #
          const %c: f32[256] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "a"
          %z = conv(%y, %v, %c, %r) | add(%r) | relu // "b"
        }""")
    (alternative,), refusals = proposed(residual)
    (step,) = alternative.steps
    assert (alternative.region, refusals) == (("a", "b"), [])
    assert (step.inputs, step.outputs) == (("x", "w", "v", "c", "r"), ("z",))
    assert [operand.shape for operand in step.problem.inputs[2:]] == [(256, 64, 1, 1), (256,), (2, 256, 9, 9)]
    assert [stage.operand for stage in step.problem.epilogue] == [4, None]
    assert op_operands(step.problem) == (0, 1, 2, 3)
    assert step.may_share == ((4, 0),)
    first, second = parts(step.problem)
    assert (first, second) == alternative.apart
    separate = [each.steps[0].problem for node in residual.nodes
                for each in FAMILY.propose(residual, node, H200, DType.F16)[0] if len(each.region) == 1]  # fmt: skip
    assert [first, second] == separate
    assert chained(first, second) == step.problem
    assert step.problem.nbytes == first.nbytes + second.nbytes - 2 * first.outputs[0].nbytes


def test_a_problem_that_cannot_be_chained() -> None:
    first, second = parts(problem())
    swapped = replace(second, epilogue=(EpilogueOp(Binary("add"), 0),))
    with pytest.raises(ValueError, match=r"^what lies between is the second product's input 0$"):
        chained(first, swapped)
    assert parts(first) == (first,)


def test_a_chained_problem_in_words() -> None:
    found = problem()
    assert describe_problem(found) == (
        "conv(f16[32,48,112,112] channels_last, f16[48,48,3,3], f32[48]) strides=[2,2] pads_begin=[1,1] "
        "pads_end=[1,1] dilations=[1,1] | relu | conv(_, f16[48,48,1,1], f32[48]) strides=[1,1] pads_begin=[0,0] "
        "pads_end=[0,0] dilations=[1,1] | relu -> f16[32,48,56,56] channels_last"
    )
    assert in_words(found) == (
        "3x3 convolution / 2, 48 to 48 channels, 112x112 to 56x56, batch 32 + bias + relu then "
        "1x1 convolution, 48 to 48 channels, 56x56, batch 32 + bias + relu"
    )
    assert in_words(found).shorter[0] == "3x3 conv/2 48>48 112x112>56x56+relu | 1x1 conv 48>48 56x56+relu"
    assert problem_text(found) == (
        "conv strides=(2, 2) pads_begin=(1, 1) pads_end=(1, 1) dilations=(1, 1) groups=1",
        "then activation function=relu alpha=0.0 beta=0.0",
        "then conv strides=(1, 1) pads_begin=(0, 0) pads_end=(0, 0) dilations=(1, 1) groups=1",
        "then activation function=relu alpha=0.0 beta=0.0",
    )


def test_a_chain_of_three_names_its_operators() -> None:
    """Chains stand for any number of operators, though no kernel computes more than two yet."""
    last, pad = Conv((1, 1), (0, 0), (0, 0), (1, 1)), Conv((1, 1), (1, 1), (1, 1), (1, 1))
    two = Chain(pad, 3, (RELU,), last)
    three = Chain(two, 4, (), last)
    assert [(m.op, m.own, m.between) for m in three.sequence] == [(pad, 3, (RELU,)), (last, 1, ()), (last, None, ())]
    assert pad.sequence == (Member(pad),)
