"""The graph's text form, for people, pass tests and golden files.

    graph tiny batch=1 (%data: f32[1,3,8,8]) -> (%"out put") {
      const %w: f32[4,3,3,3] #0f3a52c7d1e4
      const %b: f32[4] {0.5, 1, -2, inf}
      %y: f32[1,4,6,6] = conv(%data, %w, %b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "/conv1"
      %"out put": f32[1,4,6,6] = add(%y, %'half) | clip beta=6.0  // "/add"

Rules:
- A name that is not made of letters, digits and `_ . / -`, or that has `//`, is quoted as in JSON.
  `%'name` is a synthetic value.
- `activation` and `binary` are written by their function. Attributes at the op's default are omitted.
- A constant of at most 8 elements is written out in row-major order, others, and those that are held in fp32 in place
  of a half type, by the head of their digest.
- An epilogue follows the op, a stage behind each `|`: `relu`, `clip beta=6.0`, `add(%res)`, and
  `sub(%res) swapped` for res - x. The operand must stand among the node's inputs, behind the op's own; where that
  does not say which, `%res@3` names input 3.
- The node is called by the first name in the trailing comment, or, without one, like its first output; any other
  name stands behind `@`. The comment lists the ONNX nodes that the node covers.

When parsing, the type of a node's output may be left out, and so may `strides`, `dilations` (then 1) and pads (then
0) of `conv` and `pool`; `#...` behind a constant may be missing or anything (see `parse_graph`), and `positive`
in its place gives values of at least 0.5. Comments that do not begin with a quoted name are ignored.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, EpilogueOp, Graph, Node, Op, TensorType, Value
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary

INLINE_ELEMENTS = 8
DIGEST_LETTERS = 12
BARE_NAME = re.compile(r"(?:(?!//)[A-Za-z0-9_./\-])+")


def format_graph(graph: Graph) -> str:
    """The text form of `graph`, ending in a newline."""
    inputs = ", ".join(f"{format_name(graph.value(n))}: {format_type(graph.type(n))}" for n in graph.inputs)
    outputs = ", ".join(format_name(graph.value(n)) for n in graph.outputs)
    lines = [f"graph {_word(graph.name)} batch={graph.batch} ({inputs}) -> ({outputs}) {{"]
    lines += [f"  {_format_constant(value)}" for value in graph.values if value.constant is not None]
    lines += [f"  {_format_node(graph, node)}" for node in graph.nodes]
    return "\n".join([*lines, "}"]) + "\n"


def parse_graph(text: str, arrays: Iterable[Array] = ()) -> Graph:
    """The graph that `text` describes.

    A constant given by digest is looked up in `arrays`; one that is not there is drawn from a generator seeded
    with its name, so that a test can say `const %w: f32[8,3,3,3]` and means the same array every time. Raises
    TextError with line and column.
    """
    # The parser loads every operator; printing graphs, which planning does, needs none.
    from bolt_build.graph.text_parser import Parser

    return Parser(text, arrays).graph()


def format_type(t: TensorType) -> str:
    """For example `f32[1,3,224,224]`; quantised ones end in `quantized([scales],[zero points],axis)`."""
    shown = f"{t.dtype.value}[{','.join(map(str, t.shape))}]"
    if t.quantization is None:
        return shown
    q = t.quantization
    return f"{shown} quantized({_format_attribute(q.scale)},{_format_attribute(q.zero_point)},{q.axis})"


def format_name(value: Value) -> str:
    return f"%'{_word(value.name)}" if value.synthetic else f"%{_word(value.name)}"


def format_op(op: Op) -> tuple[str, str]:
    """An op's word and its attributes (each with a space before it)."""
    word = op.function if isinstance(op, Activation | Binary) else op.kind
    shown = ""
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if value != field.default and not (field.name == "function" and word != op.kind):
            shown += f" {field.name}={_format_attribute(value)}"
    return word, shown


def _word(name: str) -> str:
    return name if BARE_NAME.fullmatch(name) else json.dumps(name)


def _format_attribute(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ",".join(_format_attribute(item) for item in value) + "]"
    if isinstance(value, DType):
        return value.value
    if isinstance(value, EpilogueOp):
        value = value.op
    if isinstance(value, Op):  # of kernel problems alone, where an operator has others
        word, attributes = format_op(value)
        return f"{word}({attributes.strip()})" if attributes else word
    return repr(value) if isinstance(value, int | float) else _word(str(value))


def _format_constant(value: Value) -> str:
    assert value.constant is not None
    head = f"const {format_name(value)}: {format_type(value.type)}"
    array = value.constant.array
    is_wider = array.dtype != numpy_dtype(value.type.dtype)
    is_nan = value.type.dtype.is_float and np.isnan(array.astype(np.float64)).any()
    if array.size > INLINE_ELEMENTS or is_wider or is_nan:
        return f"{head} #{value.constant.digest[:DIGEST_LETTERS]}"
    return head + " {" + ", ".join(_format_element(item) for item in array.reshape(-1)) + "}"


def _format_element(item: np.generic) -> str:
    if isinstance(item, np.bool_):
        return "true" if item else "false"
    return str(item).removesuffix(".0")


def _format_node(graph: Graph, node: Node) -> str:
    outputs = ", ".join(f"{format_name(graph.value(n))}: {format_type(graph.type(n))}" for n in node.outputs)
    inputs = ", ".join(format_name(graph.value(n)) for n in node.inputs)
    word, attributes = format_op(node.op)
    line = f"{outputs} = {word}({inputs}){attributes}"
    for stage in node.epilogue:
        line += f" | {_format_stage(graph, node, stage)}"
    if node.name != (node.covers[0] if node.covers else node.outputs[0]):
        line += f" @{_word(node.name)}"
    if node.covers:
        line += "  // " + ", ".join(json.dumps(name) for name in node.covers)
    return line


def _format_stage(graph: Graph, node: Node, stage: EpilogueOp) -> str:
    word, attributes = format_op(stage.op)
    if stage.operand is not None:
        name = node.inputs[stage.operand]
        last = max(i for i, other in enumerate(node.inputs) if other == name)
        index = "" if stage.operand == last else f"@{stage.operand}"
        word += f"({format_name(graph.value(name))}{index})"
    return word + attributes + (" swapped" if stage.swapped else "")
