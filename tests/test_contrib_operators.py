"""Operators of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model

RANDOM = np.random.RandomState(3)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node: data and constants in the order of its inputs (None where left out), attributes, outputs."""

    op_type: str
    data: tuple[Array | None, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: dict[str, int | float | str | list[float] | list[int]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)

    @property
    def compared(self) -> list[str]:
        return [name for name in self.outputs if name not in ("", "unused")]

    def saved(self, path: Path) -> dict[str, Array]:
        """Writes the model; the inputs' arrays."""
        given = {f"x{index}": array for index, array in enumerate((*self.data, *self.constants)) if array is not None}
        names = [f"x{i}" if f"x{i}" in given else "" for i in range(len(self.data) + len(self.constants))]
        feeds = {name: array for name, array in list(given.items()) if name in names[: len(self.data)]}
        constants = [numpy_helper.from_array(array, name) for name, array in given.items() if name not in feeds]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.compared]
        node = helper.make_node(
            self.op_type, names, list(self.outputs), name="node", domain="com.microsoft", **self.attributes
        )
        graph = helper.make_graph([node], "g", ports, results, constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
        return feeds


X, SKIP, W = drawn(2, 5, 12), drawn(2, 5, 12), drawn(12)
IDS = np.asarray([[1, 4, 2, 0, 3], [5, 5, 1, 2, 6]], np.int32)
KINDS = np.asarray([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]], np.int32)
KEYS = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
LENGTHS = np.asarray([3, 5], np.int32)
WEIGHTS = (drawn(12, 36), drawn(36))
IMAGE, FILTERS, RESIDUAL = drawn(2, 4, 6, 5), drawn(6, 4, 3, 3), drawn(2, 6, 4, 3)
EMBEDDINGS = (drawn(7, 12), drawn(6, 12), drawn(2, 12), W, drawn(12))

CASES = {
    "gelu": Case("Gelu", (X,)),
    "bias-gelu": Case("BiasGelu", (X,), (W,)),
    "fast-gelu": Case("FastGelu", (X,), (W,)),
    "quick-gelu": Case("QuickGelu", (X,), (), {"alpha": 1.5}),
    "skip-norm": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12)), {"epsilon": 1e-3}),
    "skip-norm-sum": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12), drawn(12)), {}, ("y", "", "", "sum")),
    "skip-rms-norm": Case("SkipSimplifiedLayerNormalization", (X, SKIP), (W,), {}, ("y", "", "", "sum")),
    "embeddings": Case("EmbedLayerNormalization", (IDS, KINDS), EMBEDDINGS, {}, ("y", "unused")),
    "embeddings-of-words": Case(
        "EmbedLayerNormalization", (IDS,), (None, *EMBEDDINGS[:2], None, *EMBEDDINGS[3:]), {}, ("y", "unused")
    ),
    "attention": Case("Attention", (X,), WEIGHTS, {"num_heads": 3}),
    "attention-of-keys": Case("Attention", (X,), (*WEIGHTS, KEYS), {"num_heads": 3}),
    "attention-of-lengths": Case("Attention", (X,), (*WEIGHTS, LENGTHS), {"num_heads": 3, "mask_filter_value": -50.0}),
    "attention-causal": Case("Attention", (X,), WEIGHTS, {"num_heads": 2, "unidirectional": 1, "scale": 0.2}),
    "fused-product": Case("FusedMatMul", (X, SKIP), (), {"transB": 1, "alpha": 0.5}),
    "fused-product-of-columns": Case("FusedMatMul", (X, drawn(2, 5, 7)), (), {"transA": 1}),
    "fused-product-of-a-row": Case("FusedMatMul", (drawn(2, 12), W), (), {"alpha": 2.0}),
    "fused-gemm": Case(
        "FusedGemm",
        (drawn(2, 12), drawn(7, 12)),
        (drawn(7),),
        {
            "transB": 1,
            "alpha": 0.5,
            "beta": 2.0,
            "activation": "LeakyRelu",
            "activation_alpha": 0.2,
        },
    ),
    "fused-gemm-alone": Case("FusedGemm", (drawn(2, 12), drawn(12, 3)), (drawn(3),), {"activation": "Relu"}),
    "fused-convolution": Case("FusedConv", (IMAGE,), (FILTERS, drawn(6)), {"activation": "Relu"}),
    "fused-sum": Case("FusedConv", (IMAGE,), (FILTERS, drawn(6), RESIDUAL), {"activation": "Relu"}),
    **{
        f"fused-{function}": Case(
            "FusedConv",
            (IMAGE,),
            (FILTERS,),
            {
                "activation": function,
                "activation_params": parameters,
                "strides": [2, 1],
                "pads": [1, 0, 1, 2],
            },
        )
        for function, parameters in (("LeakyRelu", [0.1]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]))
    },
    "multi-head": Case("MultiHeadAttention", (X, SKIP, X), (drawn(36), KEYS), {"num_heads": 3}),
    "multi-head-cross": Case("MultiHeadAttention", (X, drawn(2, 7, 12), drawn(2, 7, 12)), (), {"num_heads": 4}),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    feeds = case.saved(tmp_path / "case.onnx")
    graph = load_model(tmp_path / "case.onnx").bind(2)
    check(graph)
    found = reference.evaluate(graph, feeds)
    session = onnxruntime.InferenceSession(tmp_path / "case.onnx", providers=["CPUExecutionProvider"])
    for output, wanted in zip(case.compared, session.run(case.compared, feeds), strict=True):
        np.testing.assert_allclose(found[output], wanted, rtol=2e-4, atol=2e-5)


ELU = "FusedConv 'node': activation 'Elu' is none of Relu, Tanh, Sigmoid, LeakyRelu, Clip, HardSigmoid"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case("FusedMatMul", (X, X), (), {"transBatchA": 1}), "FusedMatMul 'node': transBatchA=1 is not supported"),
        (Case("FusedConv", (IMAGE,), (FILTERS,), {"activation": "Elu"}), ELU),
        (Case("FusedConv", (IMAGE,), (FILTERS,), {"activation": "Clip", "activation_params": [0.0]}),
         "FusedConv 'node': activation 'Clip' has 1 parameters where 2 are"),
    ],
    ids=["batches", "function", "parameters"],
)  # fmt: skip
def test_what_is_fused_beyond_is_refused_with_a_reason(case: Case, said: str, tmp_path: Path) -> None:
    case.saved(tmp_path / "case.onnx")
    with pytest.raises(BoltError) as raised:
        load_model(tmp_path / "case.onnx").bind(2)
    assert [found.message for found in raised.value.diagnostics] == [said]


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
def test_what_onnxruntimes_optimiser_writes_is_imported(level: str, tmp_path: Path) -> None:
    """Into a model of opset 13, which has no LayerNormalization: a decomposed one, transposed products and a GELU."""
    make = helper.make_node
    two, root, eps, half, one = (f"c{value}" for value in (2.0, 1.4142135381698608, 1e-5, 0.5, 1.0))
    nodes = [
        make("ReduceMean", ["x"], ["mean"], axes=[-1]), make("Sub", ["x", "mean"], ["off"]),
        make("Pow", ["off", two], ["square"]), make("ReduceMean", ["square"], ["variance"], axes=[-1]),
        make("Add", ["variance", eps], ["shifted"]), make("Sqrt", ["shifted"], ["deviation"]),
        make("Div", ["off", "deviation"], ["unit"]), make("Mul", ["unit", "w"], ["scaled"]),
        make("Add", ["scaled", "b"], ["norm"]), make("Transpose", ["norm"], ["turned"], perm=[0, 2, 1]),
        make("MatMul", ["norm", "turned"], ["scores"]), make("Mul", ["scores", half], ["weighed"]),
        make("Div", ["weighed", root], ["part"]), make("Erf", ["part"], ["erf"]), make("Add", ["erf", one], ["more"]),
        make("Mul", ["weighed", "more"], ["both"]), make("Mul", ["both", half], ["y"]),
    ]  # fmt: skip
    scalars = [
        numpy_helper.from_array(np.asarray(float(name[1:]), np.float32), name) for name in (two, root, eps, half, one)
    ]
    rows = [numpy_helper.from_array(drawn(12), name) for name in ("w", "b")]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 5, last]) for name, last in (("x", 12), ("y", 5))
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [*scalars, *rows])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "given.onnx").write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    given = onnxruntime.InferenceSession(tmp_path / "given.onnx", options, providers=["CPUExecutionProvider"])
    found = reference.evaluate(load_model(tmp_path / "optimised.onnx").bind(2), {"x": X})
    np.testing.assert_allclose(found["y"], given.run(None, {"x": X})[0], rtol=2e-4, atol=2e-5)


def test_what_they_have_beyond_is_refused_with_a_reason(tmp_path: Path) -> None:
    case = Case("Attention", (X,), (*WEIGHTS, None, drawn(2, 2, 3, 4, 4)), {"num_heads": 3})
    case.saved(tmp_path / "case.onnx")
    with pytest.raises(BoltError) as raised:
        load_model(tmp_path / "case.onnx").bind(2)
    assert [found.message for found in raised.value.diagnostics] == ["Attention 'node': past is not supported"]
