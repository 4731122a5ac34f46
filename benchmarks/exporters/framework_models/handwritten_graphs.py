"""Files that are written node by node: with onnx.helper what exporters of modules seldom write (functions inside each
other, sequences, loops, sparse and external weights, few bits), with spox, ndonnx and onnxscript what people do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.exporters.export_frameworks import written

_RANDOM = np.random.default_rng(0)
_OWN = """<domain: "own", opset_import: ["" : %d, "own" : 1]> """
_LINE = "Line (x, w) => (y) { y = MatMul(x, w) }"
_BEND = "Bend <alpha: float = 0.5> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"
_BLOCK = "Block <alpha> (x, w) => (y) { t = own.Line(x, w) u = own.Bend <alpha: float = @alpha> (t) y = Add(u, x) }"


def _f32(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _value(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: Sequence[Any], shape: Sequence[int | str], constants: dict[str, Any] | None = None, opset: int = 17,
    functions: Sequence[str] = (), of: int = 17, outputs: str = "y",
) -> onnx.ModelProto:  # fmt: skip
    """A model of one input x; `functions` are written in opset `of`."""
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", [_value("x", shape)], [_value(name, None) for name in outputs.split()], held)
    own = [helper.make_opsetid("own", 1)] if functions else []
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), *own], ir_version=10,
        functions=[onnx.parser.parse_function(_OWN % of + text) for text in functions],
    )  # fmt: skip


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), **attributes)


def _sparse(places: Any) -> onnx.ModelProto:
    made = _model([_node("MatMul", "x w", "y")], ["N", 3])
    values = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.int64(places), "at"), [3, 4])
    made.graph.sparse_initializer.append(sparse)
    return made


def _few_bits(kind: int, low: int, high: int, block: int) -> onnx.ModelProto:
    """A product with weights of few bits, in blocks of the depth or by columns."""
    nodes = [
        _node("DequantizeLinear", "w s", "d", axis=0, block_size=block) if block
        else _node("DequantizeLinear", "w s", "d", axis=1), _node("MatMul", "x d", "y"),
    ]  # fmt: skip
    made = _model(nodes, [2, 32], {"s": np.abs(_f32(2, 8) if block else _f32(8))}, 21)
    made.graph.initializer.append(helper.make_tensor("w", kind, [32, 8], _RANDOM.integers(low, high, 256).tolist()))
    return made


def _loop(*, counted: bool) -> onnx.ModelProto:
    """A product in each turn, of a number of turns or while a comparison holds."""
    body = helper.make_graph(
        [_node("Less", "i most", "more"), _node("Mul", "s two", "s2"), _node("Identity", "s2", "row")], "body",
        [_value("i", [], TensorProto.INT64), _value("c", [], TensorProto.BOOL), _value("s", [2, 3])],
        [_value("more", [], TensorProto.BOOL), _value("s2", [2, 3]), _value("row", [2, 3])],
    )  # fmt: skip
    node = _node("Loop", "n - x" if counted else "- begin x", "y rows", body=body)
    held = {"n": np.int64(4), "begin": np.bool_(True), "most": np.int64(9 if counted else 2), "two": np.float32(2)}
    return _model([node], [2, 3], held, outputs="y rows")


def _scan() -> onnx.ModelProto:
    body = helper.make_graph(
        [_node("Add", "s e", "s2"), _node("Mul", "s2 e", "row")], "body", [_value("s", [3]), _value("e", [3])],
        [_value("s2", [3]), _value("row", [3])],
    )  # fmt: skip
    node = _node("Scan", "zeros x", "last y", body=body, num_scan_inputs=1, scan_input_directions=[1])
    return _model([node], [5, 3], {"zeros": np.zeros(3, np.float32)})


def _by_helper() -> dict[str, onnx.ModelProto]:
    square = {"w": _f32(6, 6)}
    call = {"domain": "own"}
    return {
        "functions_nested": _model(
            [_node("Block", "x w", "a", alpha=0.2, **call), _node("Block", "a w", "y", alpha=0.5, **call)], ["N", 6],
            square, functions=(_LINE, _BEND, _BLOCK),
        ),
        "function_default": _model([_node("Bend", "x", "y", **call)], ["N", 6], functions=(_BEND,)),
        "function_of_13": _model([_node("Line", "x w", "y", **call)], ["N", 6], square, 18, (_LINE,), 13),
        "sparse_flat": _sparse([1, 7, 11]), "sparse_places": _sparse([[0, 1], [1, 3], [2, 3]]),
        "int4_blocks": _few_bits(TensorProto.INT4, -8, 7, 16), "uint4_columns": _few_bits(TensorProto.UINT4, 0, 15, 0),
        "loop_counted": _loop(counted=True), "loop_while": _loop(counted=False), "scan_backwards": _scan(),
        "sequence": _model(
            [_node("SplitToSequence", "x k", "s", axis=1), _node("SequenceErase", "s p", "e"),
             _node("ConcatFromSequence", "e", "y", axis=1)],
            [2, 6], {"k": np.int64([1, 2, 3]), "p": np.int64(-2)},
        ),
        "optional": _model(
            [_node("Optional", "x", "o"), _node("OptionalGetElement", "o", "v"), _node("Relu", "v", "y")], [2, 6],
            opset=18,
        ),
        "distances": _model(
            [_node("CDist", "x w", "y", domain="com.microsoft", metric="euclidean")], [4, 6], square
        ),
    }  # fmt: skip


def _by_spox() -> dict[str, Callable[[], onnx.ModelProto]]:
    import spox.opset.ai.onnx.v17 as op
    from spox import Tensor, argument, build

    def made(shape: tuple[int | str, ...], function: Callable[[Any], Any]) -> onnx.ModelProto:
        x = argument(Tensor(np.float32, shape))
        return build({"x": x}, {"y": function(x)})

    return {
        "mlp": lambda: made(("N", 6), lambda x: op.relu(op.matmul(x, op.const(_f32(6, 4))))),
        "if": lambda: made((2, 3), lambda x: op.if_(
            op.const(True), then_branch=lambda: [op.relu(x)], else_branch=lambda: [op.neg(x)])[0]),
        "loop": lambda: made((2, 3), lambda x: op.loop(
            op.const(3), v_initial=[x],
            body=lambda i, c, v: [op.const(True), op.mul(v, op.cast(i, to=np.float32))])[0]),
        "map": lambda: made((2, 6), lambda x: op.concat_from_sequence(op.sequence_map(
            op.split_to_sequence(x, op.const(2), axis=1), [], body=lambda v: [op.relu(v)])[0], axis=0)),
        "stft": lambda: made((1, 32, 1), lambda x: op.stft(x, op.const(4), op.hann_window(op.const(8)), op.const(8))),
    }  # fmt: skip


def _by_ndonnx() -> dict[str, Callable[[], onnx.ModelProto]]:
    import ndonnx as ndx

    def made(dtype: Any, function: Callable[[Any], tuple[Any, ...]]) -> onnx.ModelProto:
        x = ndx.argument(shape=(3, 6), dtype=dtype)
        return ndx.build({"x": x}, {f"y{index}": each for index, each in enumerate(function(x))})

    return {
        "statistics": lambda: made(ndx.float32, lambda x: (
            (x - ndx.mean(x, axis=1, keepdims=True)) / ndx.std(x, axis=1, keepdims=True), ndx.argmax(x, axis=1))),
        "integers": lambda: made(ndx.int64, lambda x: (x // 3, x % 3, x << 1, x & 5, ndx.where(x > 2, x, -x))),
        "moves": lambda: made(ndx.float32, lambda x: (
            x[1:, ::2], ndx.roll(x, 2, axis=1), ndx.flip(x, axis=1), ndx.sort(x, axis=1), ndx.tril(x))),
    }  # fmt: skip


def by_hand(folder: Path) -> None:
    for name, model in _by_helper().items():
        written(folder, "onnx", name, lambda path, model=model: onnx.save(model, path))
    for exporter, models in (("spox", _by_spox()), ("ndonnx", _by_ndonnx())):
        for name, make in models.items():
            written(folder, exporter, name, lambda path, make=make: onnx.save(make(), path))
