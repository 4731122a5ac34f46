"""Problems in words, and reasons counted together."""

from __future__ import annotations

import pickle

import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, TensorFormat
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.report.brief import Brief
from bolt_build.report.explained.problem_words import in_words
from bolt_build.report.reasons import Counted, counted, listed


def words(node: str, *values: str) -> Brief:
    """The words for one node over values such as "%x: f32[1,3,8,8]" (tensors) and "const %w: f32[8,3,3,3]"."""
    inputs = ", ".join(value for value in values if value.startswith("%"))
    constants = "\n".join(f"{value} #" for value in values if value.startswith("const"))
    of = graph(f"graph g batch=1 ({inputs}) -> (%y) {{\n{constants}\n%y = {node}\n}}")
    (made,) = of.nodes
    operands = [Operand(of.type(n).shape, TensorFormat(of.type(n).dtype, Layout.ROW)) for n in made.inputs]
    outputs = [Operand(of.type(n).shape, TensorFormat(of.type(n).dtype, Layout.ROW)) for n in made.outputs]
    return in_words(KernelProblem(made.op, tuple(operands), tuple(outputs), made.epilogue, DType.F32, "host"))


IMAGE, WEIGHT, BIAS = "%x: f32[2,4,8,8]", "const %w: f32[6,4,3,3]", "const %b: f32[6]"
PADS = "pads_begin=[1,1] pads_end=[1,1]"


@pytest.mark.parametrize(
    ("node", "values", "said"),
    [
        (f"conv(%x, %w) {PADS}", (IMAGE, WEIGHT), "3x3 convolution, 4 to 6 channels, 8x8, batch 2"),
        (
            f"conv(%x, %w, %b, %r) {PADS} | add(%r) | relu", (IMAGE, "%r: f32[2,6,8,8]", WEIGHT, BIAS),
            "3x3 convolution, 4 to 6 channels, 8x8, batch 2 + bias + residual + relu",
        ),
        (
            f"conv(%x, %w, %r) strides=[2,1] {PADS} | mul(%r)", (IMAGE, "%r: f32[2,6,4,8]", WEIGHT),
            "3x3 convolution / 2x1, 4 to 6 channels, 8x8 to 4x8, batch 2 + mul by another tensor",
        ),
        (
            "conv(%x, %w) strides=[2,2] dilations=[2,2] groups=2", (IMAGE, "const %w: f32[6,2,1,1]"),
            "1x1 convolution / 2, 4 to 6 channels in 2 groups, dilated 2x2, 8x8 to 4x4, batch 2",
        ),
        ("matmul(%x, %w)", ("%x: f32[2,5]", "const %w: f32[5,7]"), "2x5 by 5x7"),
        ("matmul(%x, %w, %b)", ("%x: f32[3,2,5]", "const %w: f32[5,7]", "const %b: f32[7]"),
         "3 times 2x5 by 5x7 + bias"),
        ("pool(%x) mode=max kernel=[2,2] strides=[2,2]", (IMAGE,),
         "2x2 max pooling / 2, 4 channels, 8x8 to 4x4, batch 2"),
        ("reduce(%x) mode=mean axes=[2,3]", (IMAGE,), "mean over axes 2, 3 of 2x4x8x8"),
        ("relu(%x)", (IMAGE,), "relu of 2x4x8x8"),
        ("add(%x, %r)", (IMAGE, "%r: f32[8]"), "add of 2x4x8x8 and 8"),
        ("reshape(%x) shape=[2,256]", (IMAGE,), "reshape of 2x4x8x8 to 2x256"),
    ],
)  # fmt: skip
def test_a_problem_in_words(node: str, values: tuple[str, ...], said: str) -> None:
    assert words(node, *values) == said


@pytest.mark.parametrize(
    ("node", "values", "forms"),
    [
        (
            f"conv(%x, %w, %b, %r) strides=[2,2] {PADS} | add(%r) | relu", (IMAGE, "%r: f32[2,6,4,4]", WEIGHT, BIAS),
            ("3x3 conv/2 4>6 8x8>4x4+res+relu", "3x3 conv/2 4>6 8x8>4x4", "3x3 conv/2 4>6"),
        ),
        ("conv(%x, %w) strides=[2,2] dilations=[2,2] groups=2", (IMAGE, "const %w: f32[6,2,1,1]"),
         ("1x1 conv/2 4>6 g2 dilated 2x2 8x8>4x4",) * 2 + ("1x1 conv/2 4>6 g2 dilated 2x2",)),
        ("pool(%x) mode=max kernel=[2,2] strides=[2,2]", (IMAGE,),
         ("2x2 maxpool/2 4 8x8>4x4", "2x2 maxpool/2 4 8x8>4x4", "2x2 maxpool/2 4")),
        ("matmul(%x, %w, %b)", ("%x: f32[3,2,5]", "const %w: f32[5,7]", "const %b: f32[7]"),
         ("3 of 2x5 @ 5x7",) * 3),
        ("reduce(%x) mode=mean axes=[2,3]", (IMAGE,), ("mean over axes 2 3 of 2x4x8x8",) * 3),
        ("reshape(%x) shape=[2,256]", (IMAGE,), ("reshape of 2x4x8x8>2x256",) * 3),
    ],
)  # fmt: skip
def test_a_problem_in_brief(node: str, values: tuple[str, ...], forms: tuple[str, ...]) -> None:
    """Then without the epilogue, then without extents too."""
    assert words(node, *values).shorter == forms


def test_a_conversion_in_words() -> None:
    row, last = TensorFormat(DType.F32, Layout.ROW), TensorFormat(DType.F16, Layout.CHANNELS_LAST)
    inputs, outputs = (Operand((1, 3, 8, 8), row),), (Operand((1, 3, 8, 8), last),)
    problem = KernelProblem(Convert(), inputs, outputs, (), DType.F32, "h200")
    assert in_words(problem) == "f32/row to f16/channels_last, 1x3x8x8"


def test_the_first_reasons_are_listed_and_others_counted_where_they_are_several() -> None:
    reasons = tuple(Counted(f"reason {number}", 20 - number) for number in range(10))
    assert listed("left out", ()) == []
    assert listed("left out", reasons[:9])[-2:] == ["  13 reason 7", "  12 reason 8"]
    assert listed("left out", reasons) == [
        "left out:", *(f"  {20 - number} reason {number}" for number in range(8)), "  23 for 2 other reasons",
    ]  # fmt: skip


def test_reasons_that_differ_in_numbers_are_one_with_ranges() -> None:
    tiles = [Reason("a tile of {} rows", rows) for rows in (64, 8.5, 128)]
    assert counted([tiles[0], "too thin", *tiles[1:]]) == (
        Counted("a tile of 8.5..128 rows", 3),
        Counted("too thin", 1),
    )
    assert counted([within("cutlass", tile) for tile in tiles]) == (Counted("cutlass: a tile of 8.5..128 rows", 3),)


def test_equal_numbers_stay_as_they_are() -> None:
    assert counted([Reason("{} of {}", 12, 25), Reason("{} of {}", 13, 25)]) == (Counted("12..13 of 25", 2),)


def test_plain_strings_are_one_where_they_are_equal() -> None:
    assert counted(["a tile of 8", "a tile of 9", "a tile of 8"]) == (
        Counted("a tile of 8", 2),
        Counted("a tile of 9", 1),
    )


def test_a_reason_is_its_sentence_with_its_numbers_apart() -> None:
    reason = within("the first product", Reason("takes {} bytes, a block has {}", 9, 8))
    assert reason == "the first product: takes 9 bytes, a block has 8"
    assert isinstance(reason, Reason)
    assert (reason.form, reason.numbers) == ("the first product: takes {} bytes, a block has {}", (9, 8))
    assert pickle.loads(pickle.dumps(reason)).numbers == (9, 8)
    with pytest.raises(ValueError, match="1 numbers for 'no place for it'"):
        Reason("no place for it", 1)
