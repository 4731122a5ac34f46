"""A kernel problem in a few words: what it computes, over which sizes, with what behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.graph.ops.norms.row_sum import Rows, RowSum
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.report.brief import Brief


@dataclass(frozen=True)
class _Style:
    """How long the words are: of tables that have little room, brief ones, without epilogues or extents where there is
    less."""

    brief: bool
    epilogue: bool = True
    extents: bool = True

    @property
    def comma(self) -> str:
        return " " if self.brief else ", "

    def change(self, one: object, other: object) -> str:
        return f"{one}>{other}" if self.brief else f"{one} to {other}"

    def channels(self, text: str) -> str:
        return text if self.brief else f"{text} channels"


_WHOLE = _Style(brief=False)
_BRIEF = (_Style(brief=True), _Style(brief=True, epilogue=False), _Style(brief=True, epilogue=False, extents=False))


def in_words(problem: KernelProblem) -> Brief:
    """For example `3x3 convolution / 2, 64 to 128 channels, 56x56 to 28x28, batch 32 + bias + relu`; in brief
    `3x3 conv/2 64>128 56x56>28x28+relu`, then without epilogue, then without extents too."""
    members = parts(problem)
    shorter = (" | ".join(_in_words(member, style) for member in members) for style in _BRIEF)
    return Brief(" then ".join(_in_words(member, _WHOLE) for member in members), *shorter)


def _in_words(problem: KernelProblem, style: _Style) -> str:
    """Of a single operator."""
    op, shapes = problem.op, [operand.shape for operand in problem.inputs]
    out = problem.outputs[0].shape
    if isinstance(op, Conv):
        return _convolution(op, shapes, out, style) + _behind(problem, 2, style)
    if isinstance(op, MatMul):
        return _product(op, shapes, out, style) + _behind(problem, 2, style)
    if isinstance(op, Pool):
        pooling = f"{op.mode}pool" if style.brief else f"{op.mode} pooling"
        text = f"{_sizes(op.kernel)} {pooling}{_strides(op.strides, style)}{style.comma}"
        channels = style.channels(str(shapes[0][1]))
        return f"{text}{channels}{_extents(shapes[0], out, style)}" + _behind(problem, 1, style)
    if isinstance(op, Convert):
        return f"{problem.inputs[0].format} to {problem.outputs[0].format}{style.comma}{_sizes(out)}"
    if isinstance(op, Reduce):
        axes = style.comma.join(map(str, op.axes))
        return f"{op.mode} over axes {axes} of {_sizes(shapes[0])}" + _behind(problem, 1, style)
    if isinstance(op, RowSum):
        return f"{_terms(op, style)}{style.comma}{_sizes(out)}"
    if isinstance(op, Formula):
        return f"{'+'.join(term.word for term in op.terms)} of {_sizes(out)}"
    if isinstance(op, FoldedFormula):
        functions = "+".join(term.word for term in op.formula.terms)
        whole = op.whole([operand.type for operand in problem.inputs])
        return f"{op.fold.mode} of {functions} of {_sizes(whole.shape)}"
    if isinstance(op, Gated):
        return _gated(op, shapes, out, style) + _behind(problem, len(shapes), style)
    name = op.function if isinstance(op, Activation | Binary) else op.kind
    of = [_sizes(shape) for shape in shapes[: 2 if isinstance(op, Binary) else 1]]
    if shapes[0] != out:
        of[-1] = style.change(of[-1], _sizes(out))
    return f"{name} of {' and '.join(of)}" + _behind(problem, len(shapes), style)


def _convolution(op: Conv, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], style: _Style) -> str:
    kernel = f"{_sizes(shapes[1][2:])} {'conv' if style.brief else 'convolution'}{_strides(op.strides, style)}"
    groups = (f" g{op.groups}" if style.brief else f" in {op.groups} groups") if op.groups > 1 else ""
    dilated = f"{style.comma}dilated {_sizes(op.dilations)}" if any(step > 1 for step in op.dilations) else ""
    channels = style.channels(style.change(shapes[0][1], out[1]))
    return f"{kernel}{style.comma}{channels}{groups}{dilated}{_extents(shapes[0], out, style)}"


def _product(op: MatMul, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], style: _Style) -> str:
    inner = shapes[0][-2 if op.transpose_a else -1]
    one, other = _sizes((*out[-2:-1], inner)), _sizes((inner, out[-1]))
    if style.brief:
        return f"{'' if math.prod(out[:-2]) == 1 else f'{_sizes(out[:-2])} of '}{one} @ {other}"
    return f"{'' if len(out) <= 2 else f'{_sizes(out[:-2])} times '}{one} by {other}"


def _gated(op: Gated, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], style: _Style) -> str:
    """For example `gated 512x768 by 768x1152, gelu times identity`: its product as if its columns were those stored."""
    if isinstance(op.product, Conv):
        text = _convolution(op.product, shapes, out, style)
    else:
        assert isinstance(op.product, MatMul)
        text = _product(op.product, shapes, out, style)
    if not style.epilogue:
        return f"gated {text}"
    sides = (
        " ".join(each.op.function for each in stages if isinstance(each.op, Activation)) or "identity"
        for stages in (op.first, op.second)
    )
    return f"gated {text}{style.comma}{(' * ' if style.brief else ' times ').join(sides)}"


def _terms(op: RowSum, style: _Style) -> str:
    """For example `sum of rows of 2 tables and 1 tensor`."""
    counts = [(sum(term.rows is rows for term in op.terms), word) for rows, word in _ROWS.items()]
    words = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count]
    return ("rows " + "+".join(words)) if style.brief else f"sum of rows of {' and '.join(words)}"


_ROWS = {Rows.TABLE: "table", Rows.JOINED: "concatenation", Rows.TENSOR: "tensor"}


def _behind(problem: KernelProblem, own: int, style: _Style) -> str:
    """The bias, where the op has one behind its `own` first inputs, and the epilogue's stages. In brief no bias."""
    if not style.epilogue:
        return ""
    of_stages = {stage.operand for stage in problem.epilogue}
    has_bias = own == 2 and any(index not in of_stages for index in range(own, len(problem.inputs)))
    stages = [_stage(problem, stage, style) for stage in problem.epilogue]
    if style.brief:
        return "".join(f"+{word}" for word in stages)
    return "".join(f" + {word}" for word in (*(["bias"] if has_bias else []), *stages))


def _stage(problem: KernelProblem, stage: EpilogueOp, style: _Style) -> str:
    if isinstance(stage.op, Activation):
        return stage.op.function
    assert isinstance(stage.op, Binary)
    if stage.operand is not None and problem.inputs[stage.operand].constant:
        return "constant" if stage.op.function == "add" else f"{stage.op.function} by a constant"
    if stage.operand is not None and problem.inputs[stage.operand].shape != problem.outputs[0].shape:
        return f"{stage.op.function} by the image's" if style.brief else f"{stage.op.function} by numbers of the image"
    residual = "res" if style.brief else "residual"
    return residual if stage.op.function == "add" else f"{stage.op.function} by another tensor"


def _extents(x: tuple[int, ...], out: tuple[int, ...], style: _Style) -> str:
    if not style.extents:
        return ""
    extents = _sizes(x[2:]) if x[2:] == out[2:] else style.change(_sizes(x[2:]), _sizes(out[2:]))
    return f" {extents}" if style.brief else f", {extents}, batch {out[0]}"


def _strides(strides: tuple[int, ...], style: _Style) -> str:
    if all(stride == 1 for stride in strides):
        return ""
    steps = strides[0] if len(set(strides)) == 1 else _sizes(strides)
    return f"/{steps}" if style.brief else f" / {steps}"


def _sizes(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "1"
