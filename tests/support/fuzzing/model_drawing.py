"""Small right models of every kind that the importer knows, and ONNX's own of single operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import onnx
from graph_models import model, node, ones, tensor
from onnx import ModelProto, TensorProto, helper, numpy_helper

Files = tuple[tuple[str, bytes], ...]


def drawn(random: Random) -> tuple[ModelProto, Files]:
    """A model that may be changed, and the files beside it."""
    if random.random() < 0.5 and _node_models():
        path = random.choice(_node_models())
        found = onnx.load(str(path), load_external_data=False)
        found.graph.name = path.parent.name
        for opset in found.opset_import:
            opset.version = max(opset.version, random.choice((9, 12, 18)))
        return found, ()
    found = ModelProto()
    chosen = random.choice(plain())
    found.CopyFrom(chosen)
    return found, (("w.bin", np.arange(64, dtype=np.float32).tobytes()),) if chosen.graph.name == "external" else ()


@functools.cache
def plain() -> tuple[ModelProto, ...]:
    """The right models, of which parts may be taken too."""
    found = []
    for draw in _KINDS:
        proto = draw()
        proto.graph.name = draw.__name__
        found.append(proto)
    return tuple(found)


@functools.cache
def _node_models() -> tuple[Path, ...]:
    """Models of ONNX's suite, where the installed package has them."""
    data = Path(onnx.__file__).parent / "backend/test/data"
    return tuple(sorted(path for path in data.glob("*/*/model.onnx") if path.stat().st_size < 20_000))


def convolutions() -> ModelProto:
    nodes = [
        node("Conv", "x w b", "c", "conv", pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
        node("BatchNormalization", "c s s s s", "n", "norm", epsilon=1e-5),
        node("Relu", "n", "r", "relu"),
        node("MaxPool", "r", "m", "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        node("Conv", "m g", "d", "depthwise", group=8, auto_pad="SAME_UPPER", dilations=[1, 1]),
        node("Add", "d m", "a", "residual"),
        node("AveragePool", "a", "v", "average", kernel_shape=[2, 2], count_include_pad=1),
        node("GlobalAveragePool", "v", "p", "global"),
        node("Flatten", "p", "f", "flatten"),
        node("Gemm", "f fc fb", "l", "classifier", transB=1),
        node("Softmax", "l", "y", "softmax", axis=-1),
    ]
    constants = {
        "w": ones(8, 3, 3, 3), "b": ones(8), "s": ones(8), "g": ones(8, 1, 3, 3), "fc": ones(10, 8), "fb": ones(10),
    }  # fmt: skip
    return model(nodes, [tensor("x", ["N", 3, 16, 16])], constants=constants)


def one_axis() -> ModelProto:
    nodes = [
        node("Pad", "x pads", "p", "pad", mode="edge"),
        node("Conv", "p w", "c", "conv", strides=[3], dilations=[2]),
        node("LRN", "c", "l", "lrn", size=3),
        node("MaxPool", "l", "y", "pool", kernel_shape=[2], strides=[1]),
    ]
    constants = {"pads": np.asarray([0, 0, 2, 0, 0, 1]), "w": ones(4, 2, 3)}
    return model(nodes, [tensor("x", ["N", 2, "length"])], constants=constants)


def attention() -> ModelProto:
    nodes = [
        node("MatMul", "x w", "q", "query"),
        node("Reshape", "q heads", "h", "split"),
        node("Transpose", "h", "t", "heads", perm=[0, 2, 1, 3]),
        node("Transpose", "h", "u", "keys", perm=[0, 2, 3, 1]),
        node("MatMul", "t u", "s", "scores"),
        node("Mul", "s scale", "k", "scale"),
        node("Softmax", "k", "a", "attend", axis=-1),
        node("MatMul", "a t", "o", "mix"),
        node("ReduceMean", "o", "m", "mean", axes=[3], keepdims=1),
        node("Sub", "o m", "d", "centre"),
        node("Pow", "d two", "e", "square"),
        node("Sqrt", "e", "r", "root"),
        node("Gelu", "r", "y", "gelu"),
    ]
    constants = {
        "w": ones(8, 8), "heads": np.asarray([0, -1, 2, 4]), "scale": np.asarray(0.5, np.float32),
        "two": np.asarray(2, np.float32),
    }  # fmt: skip
    return model(nodes, [tensor("x", ["N", "length", 8])], constants=constants, opset=20)


def arithmetic_on_shapes() -> ModelProto:
    nodes = [
        node("Shape", "x", "s", "shape"),
        node("Gather", "s zero", "n", "gather", axis=0),
        node("Unsqueeze", "n axes", "u", "unsqueeze"),
        node("Concat", "u rest", "c", "concat", axis=0),
        node("Reshape", "x c", "r", "reshape"),
        node("ConstantOfShape", "c", "z", "filled", value=numpy_helper.from_array(np.asarray([2], np.float32))),
        node("Range", "zero six one", "i", "range"),
        node("Cast", "i", "f", "cast", to=TensorProto.FLOAT),
        node("Tile", "f twice", "t", "tile"),
        node("Expand", "t wide", "e", "expand"),
        node("Greater", "e half", "g", "greater"),
        node("Where", "g e half", "w", "where"),
        node("Slice", "w starts ends axis steps", "k", "slice"),
        node("ReduceProd", "c", "p", "product", keepdims=0),
        node("Cast", "p", "q", "count", to=TensorProto.FLOAT),
        node("Sum", "r z k q", "y", "sum"),
    ]
    constants = {
        "zero": np.asarray(0), "axes": np.asarray([0]), "rest": np.asarray([6]), "six": np.asarray(6),
        "one": np.asarray(1), "twice": np.asarray([2]), "wide": np.asarray([1, 12]),
        "half": np.asarray(0.5, np.float32),
        "starts": np.asarray([0]), "ends": np.asarray([2**63 - 1]), "axis": np.asarray([1]), "steps": np.asarray([2]),
    }  # fmt: skip
    return model(nodes, [tensor("x", ["N", 2, 3])], constants=constants)


def inputs_apart() -> ModelProto:
    nodes = [
        node("Add", "a b", "c", "add"),
        node("Div", "c d", "e", "divide"),
        node("Split", "e", "f g", "split", axis=1),
        node("Concat", "g f", "h", "join", axis=1),
        node("Clip", "h low", "y", "clip"),
        node("HardSwish", "f", "z", "other"),
    ]
    inputs = [tensor("a", [3, 4, 5]), tensor("b", [5]), tensor("d", [])]
    return model(nodes, inputs, ("y", "z"), {"low": np.asarray(0, np.float32)})


def functions() -> ModelProto:
    proto = model([node("Outer", "x", "y", "call", domain="local", slope=0.2)], opsets=[("local", 1)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = node("LeakyRelu", "a", "r")
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner = [leaky, node("Constant", "", "c", value=numpy_helper.from_array(ones(1))), node("Add", "r c", "b")]
    outer = [node("Inner", "a", "m", domain="local", slope=0.5), node("Inner", "m", "b", domain="local", slope=0.1)]
    proto.functions.append(helper.make_function("local", "Inner", ["a"], ["b"], inner, imports, ["slope"]))
    proto.functions.append(helper.make_function("local", "Outer", ["a"], ["b"], outer, imports, ["slope"]))
    return proto


def external() -> ModelProto:
    proto = model([node("Add", "x w", "a"), node("Mul", "a v", "y")], [tensor("x", ["N", 8])])
    for name, offset in (("w", 0), ("v", 32)):
        found = proto.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=[8])
        found.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", str(offset)), ("length", "32")):
            found.external_data.add(key=key, value=value)
    return proto


def subgraphs() -> ModelProto:
    """What is not supported: control flow, sequences, sparse tensors, optional and string inputs."""
    branch = helper.make_graph([node("Identity", "x", "inner")], "branch", [], [tensor("inner", None)])
    loop = helper.make_graph([node("If", "c", "i", then_branch=branch, else_branch=branch)], "body", [], [])
    nodes = [
        node("If", "c", "a", "branch", then_branch=branch, else_branch=branch),
        node("Loop", "n c a", "b", "loop", body=loop),
        node("SequenceAt", "q n", "d", "at"),
        node("Sum", "b d s", "y", "sum"),
    ]
    sequence = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)
    text = tensor("t", [1], TensorProto.STRING)
    inputs = [
        tensor("x", [1, 8]),
        tensor("c", [], TensorProto.BOOL),
        tensor("n", [], TensorProto.INT64),
        sequence,
        text,
    ]
    proto = model(nodes, inputs)
    values, indices = numpy_helper.from_array(ones(1), "s"), numpy_helper.from_array(np.zeros(1, np.int64), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [8]))
    return proto


def typed() -> ModelProto:
    """Tensors of other element types, and in fields of their own."""
    proto = model(
        [node("Add", "x h", "a", "add"), node("Cast", "a", "f", to=TensorProto.FLOAT), node("Mul", "f m", "y")],
        [tensor("x", [2, 4], TensorProto.FLOAT16)],
        constants={"h": np.ones(4, np.float16)},
    )
    proto.graph.initializer.append(helper.make_tensor("m", TensorProto.FLOAT, [2, 4], [0.5] * 8))
    proto.graph.value_info.append(tensor("a", [2, 4], TensorProto.FLOAT16))
    proto.metadata_props.add(key="author", value="nobody")
    return proto


_KINDS: tuple[Callable[[], ModelProto], ...] = (
    convolutions, one_axis, attention, arithmetic_on_shapes, inputs_apart, functions, external, subgraphs, typed,
)  # fmt: skip
