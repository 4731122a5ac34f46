"""Operators of onnxruntime's own domain, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from contrib_nodes import Case, drawn, same_as_onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.onnx_import import load_model

X, SKIP, W = drawn(2, 5, 12), drawn(2, 5, 12), drawn(12)
IDS = np.asarray([[1, 4, 2, 0, 3], [5, 5, 1, 2, 6]], np.int32)
KINDS = np.asarray([[0, 0, 1, 1, 1], [0, 1, 0, 1, 0]], np.int32)
KEYS = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
IMAGE, FILTERS, RESIDUAL = drawn(2, 4, 6, 5), drawn(6, 4, 3, 3), drawn(2, 6, 4, 3)
EMBEDDINGS = (drawn(7, 12), drawn(6, 12), drawn(2, 12), W, drawn(12))
RANDOM = np.random.RandomState(5)
BYTES = tuple(
    RANDOM.randint(0, 255, shape).astype(np.uint8) for shape in ((7, 12), (6, 12), (2, 12), (12,), (12,))
)  # fmt: skip
SCALES = (0.02, 0.03, 0.01, 0.05, 0.04)
PIXELS = RANDOM.randint(0, 255, (2, 4, 6, 4)).astype(np.uint8)
CONVOLVED = (
    np.asarray(0.1, np.float32), np.asarray(128, np.uint8), RANDOM.randint(-99, 99, (6, 4, 3, 3)).astype(np.int8),
    np.asarray(0.02, np.float32), np.asarray(0, np.int8), np.asarray(0.5, np.float32), np.asarray(120, np.uint8),
    RANDOM.randint(-99, 99, 6).astype(np.int32),
)  # fmt: skip

CASES = {
    "gelu": Case("Gelu", (X,)),
    "bias-gelu": Case("BiasGelu", (X,), (W,)),
    "fast-gelu": Case("FastGelu", (X,), (W,)),
    "quick-gelu": Case("QuickGelu", (X,), (), {"alpha": 1.5}),
    "skip-norm": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12)), {"epsilon": 1e-3}),
    "skip-norm-sum": Case("SkipLayerNormalization", (X, SKIP), (W, drawn(12), drawn(12)), {}, ("y", "", "", "sum")),
    "skip-rms-norm": Case("SkipSimplifiedLayerNormalization", (X, SKIP), (W,), {}, ("y", "", "", "sum")),
    "embeddings": Case("EmbedLayerNormalization", (IDS, KINDS), EMBEDDINGS, {}, ("y", "unused")),
    "embeddings-counted": Case(
        "EmbedLayerNormalization", (IDS, KINDS), (*EMBEDDINGS, KEYS), {}, ("y", "n", "sum"), ("n",)
    ),
    "embeddings-counted-by-ones": Case(
        "EmbedLayerNormalization", (IDS, KINDS), (*EMBEDDINGS, 2 * KEYS - KINDS), {}, ("y", "n"), ("n",)
    ),
    "embeddings-placed": Case(
        "EmbedLayerNormalization",
        (IDS, None),
        (*EMBEDDINGS[:2], None, *EMBEDDINGS[3:], None, KINDS),
        {},
        ("y", "n"),
        ("n",),
    ),
    "embeddings-of-words": Case(
        "EmbedLayerNormalization", (IDS,), (None, *EMBEDDINGS[:2], None, *EMBEDDINGS[3:]), {}, ("y", "unused")
    ),
    "triangle": Case("Trilu", (X,), (np.asarray(-1),), {"upper": 0}),
    "rows": Case("GatherND", (X, np.asarray([[0, 3], [1, 4]]))),
    "samples": Case("GridSample", (IMAGE, drawn(2, 3, 4, 2) / 2), (), {"padding_mode": "border", "align_corners": 1}),
    "samples-cubic": Case("GridSample", (IMAGE, drawn(2, 3, 4, 2) / 2), (), {"mode": "bicubic"}),
    "fused-product": Case("FusedMatMul", (X, SKIP), (), {"transB": 1, "alpha": 0.5}),
    "fused-product-of-columns": Case("FusedMatMul", (X, drawn(2, 5, 7)), (), {"transA": 1}),
    "fused-product-of-batches": Case(
        "FusedMatMul", (drawn(2, 3, 5, 4),), (drawn(4, 2, 3, 6),), {"transBatchB": 1, "alpha": 0.5}
    ),
    "fused-product-of-swapped-batches": Case(
        "FusedMatMul", (drawn(2, 3, 5),), (drawn(3, 6, 2),), {"transA": 1, "transBatchA": 1, "transB": 1}
    ),
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
    "pad": Case("Pad", (X,), (np.asarray([[0, 1, 2, 0, 0, 1]]), np.asarray([0.5], np.float32))),
    "pad-reflected": Case("Pad", (X,), (np.asarray([0, 1, 2, 0, 0, 1]),), {"mode": "reflect"}),
    "one-axis-more": Case("ExpandDims", (X,), (np.asarray(-1, np.int32),)),
    "embeddings-of-bytes": Case(
        "QEmbedLayerNormalization",
        (IDS, KINDS),
        (*BYTES, None, *(np.asarray(each, np.float32) for each in SCALES), *(np.asarray(128, np.uint8),) * 5),
        {},
        ("y", "unused"),
    ),
    "weights-in-the-order-of-others": Case(
        "MatMulNBits",
        (drawn(2, 64),),
        (
            RANDOM.randint(0, 255, (8, 2, 16)).astype(np.uint8),
            drawn(8, 2),
            None,
            np.repeat([1, 0], 32).astype(np.int32),
        ),
        {"K": 64, "N": 8, "bits": 4, "block_size": 32},
    ),
    "convolution-of-bytes": Case(
        "QLinearConv", (PIXELS,), CONVOLVED, {"channels_last": 1, "pads": [1, 0, 1, 2]}, kind=TensorProto.UINT8
    ),
    "convolution-of-bytes-by-channels": Case("QLinearConv", (PIXELS,), CONVOLVED, kind=TensorProto.UINT8),
    "largest-of-bytes": Case(
        "NhwcMaxPool",
        (PIXELS,),
        (),
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "ceil_mode": 1},
        kind=TensorProto.UINT8,
    ),
    "affine": Case("Affine", (X,), (), {"alpha": 2.0, "beta": 0.5}, domain="", opset=9),
    "scaled-tanh": Case("ScaledTanh", (X,), (), {"alpha": 1.5, "beta": 0.3}, domain="", opset=9),
    "parametric-softplus": Case("ParametricSoftplus", (X,), (), {"alpha": 1.5, "beta": 2.0}, domain="", opset=9),
    "image-scaler": Case("ImageScaler", (IMAGE,), (), {"scale": 0.5, "bias": [0.1, 0.2, 0.3, 0.4]}, domain="", opset=9),
    "crop": Case("Crop", (IMAGE,), (), {"border": [1, 2, 0, 1]}, domain="", opset=9),
    "crop-of-an-extent": Case("Crop", (IMAGE,), (), {"border": [1, 2, 0, 0], "scale": [3, 2]}, domain="", opset=9),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    same_as_onnxruntime(CASES[name], tmp_path)


ELU = "FusedConv 'node': activation 'Elu' is none of Relu, Tanh, Sigmoid, LeakyRelu, Clip, HardSigmoid"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case("FusedMatMul", (IDS.astype(np.float32), X), (), {"transBatchA": 1}),
         "FusedMatMul 'node': transBatchA=1 needs factors of three axes or more, as many in both"),
        (Case("FusedConv", (IMAGE,), (FILTERS,), {"activation": "Elu"}), ELU),
        (Case("FusedConv", (IMAGE,), (FILTERS,), {"activation": "Clip", "activation_params": [0.0]}),
         "FusedConv 'node': activation 'Clip' has 1 parameters where 2 are"),
        (Case("Pad", (X,), (np.asarray([0, 1]),)), "Pad 'node': pads [2] must be two integers for each of 3 axes"),
        (Case("Crop", (IMAGE,), (), {"border": [3, 2, 0, 6]}, domain=""),
         "Crop 'node': nothing is left of [2, 4, 6, 5] within a border of [3, 2, 0, 6]"),
        (Case("MatMulNBits", (drawn(2, 64),), (np.zeros((8, 2, 16), np.uint8), drawn(8, 2), None,
                                                np.full(64, 2, np.int32)), {"K": 64, "N": 8, "bits": 4,
                                                                            "block_size": 32}),
         "MatMulNBits 'node': g_idx must have one of 2 blocks for each of 64 rows"),
    ],
    ids=["batches", "function", "parameters", "pads", "border", "blocks"],
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
