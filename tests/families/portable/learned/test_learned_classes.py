"""Trees, support vectors, classifiers and encoders of the domain ai.onnx.ml, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, node, refusals, saved, tensor
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate

X = np.random.RandomState(0).standard_normal((12, 3)).astype(np.float32)
WHOLE = np.random.RandomState(1).randint(0, 4, (5, 3)).astype(np.int64)
HOLES = np.where(np.abs(X) > 1, np.nan, X).astype(np.float32)
VECTORS = np.random.RandomState(2).standard_normal((5, 3)).astype(np.float32).ravel().tolist()
WAYS = ("NONE", "SOFTMAX", "LOGISTIC")


def forest(prefix: str, ids: tuple[int, ...], weights: tuple[float, ...], **attributes: Any) -> dict[str, Any]:
    """Two trees: one asks twice, the other once. Each leaf has a weight of each of `ids`."""
    leaves = [(0, 1), (0, 3), (0, 4), (1, 1), (1, 2)]
    said = [(*leaf, column) for leaf in leaves for column in ids]
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 0, 2, 0, 0, 1, 0, 0],
        "nodes_values": [0.1, 0.0, -0.3, 0.0, 0.0, 0.2, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
        f"{prefix}_treeids": [tree for tree, _, _ in said],
        f"{prefix}_nodeids": [number for _, number, _ in said],
        f"{prefix}_ids": [column for _, _, column in said],
        f"{prefix}_weights": [weights[index % len(weights)] for index in range(len(said))],
        **attributes,
    }


def forest_of_5(targets: int, **attributes: Any) -> dict[str, Any]:
    """A tree that asks twice, and one that asks once, as version 5 says it: leaves stand apart from nodes."""
    return {
        "tree_roots": [0, 2],
        "nodes_splits": numpy_helper.from_array(np.float32([0.1, -0.3, 0.2])),
        "nodes_modes": numpy_helper.from_array(np.uint8([0, 3, 1])),
        "nodes_featureids": [0, 2, 1],
        "nodes_truenodeids": [0, 1, 3], "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 4], "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [index % targets for index in range(5)],
        "leaf_weights": numpy_helper.from_array(np.float32([-0.1, 0.6, -0.7, 0.4, 0.2])),
        "n_targets": targets,
        **attributes,
    }  # fmt: skip


POSITIVE, MIXED = (0.1, 0.45, 0.3, 0.05, 0.25), (-0.1, 0.6, -0.7, 0.4, 0.2)
TWO = {"classlabels_int64s": [7, 9]}
THREE = {"classlabels_int64s": [7, 8, 9]}
VECTORS_OF_TWO = {
    "support_vectors": VECTORS, "vectors_per_class": [2, 3], "coefficients": [0.5, -0.3, 0.2, 0.7, -0.1], "rho": [0.1],
    "classlabels_ints": [7, 9],
}  # fmt: skip
VECTORS_OF_THREE = {
    "support_vectors": VECTORS, "vectors_per_class": [2, 2, 1], "rho": [0.1, -0.2, 0.3], "classlabels_ints": [7, 8, 9],
    "coefficients": [0.5, -0.3, 0.2, 0.7, -0.1, 0.3, 0.4, -0.6, 0.2, 0.1],
}  # fmt: skip
KERNELS = {"LINEAR": [0.5, 0.0, 3.0], "POLY": [0.5, 0.1, 3.0], "RBF": [0.5, 0.0, 0.0], "SIGMOID": [0.5, 0.1, 0.0]}


@dataclass(frozen=True)
class Case:
    op_type: str
    attributes: dict[str, Any]
    data: Array | None = None
    twice: bool = False
    """Whether twice the data are a second input."""

    @property
    def inputs(self) -> dict[str, Array]:
        data = X if self.data is None else self.data
        return {"x0": data, "x1": data * 2} if self.twice else {"x0": data}

    def model(self, outputs: str = "") -> ModelProto:
        """One node, whose outputs are the label and the scores of a classifier, or one of any other operator."""
        outputs = outputs or ("label scores" if self.op_type.endswith("Classifier") else "y")
        made = node(self.op_type, " ".join(self.inputs), outputs, "node", domain="ai.onnx.ml", **self.attributes)
        ports = [
            tensor(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype))
            for name, array in self.inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in ("label", "whole") else TensorProto.FLOAT, None
            )
            for name in outputs.split()
        ]
        graph = helper.make_graph([made], "g", ports, results)
        version = 5 if self.op_type == "TreeEnsemble" else 3
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", version)], ir_version=8)


CASES = {
    **{
        f"trees of {targets} numbers, {how}": Case(
            "TreeEnsembleRegressor",
            forest("target", tuple(range(targets)), MIXED, n_targets=targets, aggregate_function=how,
                   base_values=[0.25] * targets, post_transform="SOFTMAX"),
        )
        for targets, how in ((1, "SUM"), (2, "SUM"), (1, "AVERAGE"), (1, "MIN"), (2, "MAX"))
    },
    **{
        f"trees of {count} classes, {way} of {sign} numbers{' and a base' if base else ''}": Case(
            "TreeEnsembleClassifier",
            forest("class", (0,) if count == 2 else (0, 1, 2), weights, post_transform=way, **labels,
                   **({"base_values": base} if base else {})),
        )
        for way in WAYS
        for sign, weights in (("positive", POSITIVE), ("mixed", MIXED))
        for count, labels, base in ((2, TWO, []), (2, TWO, [0.2]), (3, THREE, []), (3, THREE, [0.1, 0.2, 0.3]))
    },
    "trees that send what is no number to yes": Case(
        "TreeEnsembleRegressor",
        forest("target", (0,), MIXED, n_targets=1, nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 1, 0, 0]), HOLES,
    ),
    **{
        f"trees of version 5, {targets} numbers, way {how}": Case(
            "TreeEnsemble", forest_of_5(targets, aggregate_function=how)
        )
        for targets, how in ((1, 0), (2, 1), (1, 2), (2, 3))
    },
    "trees of version 5 that send what is no number to yes": Case(
        "TreeEnsemble", forest_of_5(1, nodes_missing_value_tracks_true=[1, 0, 1]), HOLES
    ),
    "trees of whole numbers": Case(
        "TreeEnsembleClassifier", forest("class", (0, 1, 2), MIXED, **THREE), WHOLE
    ),
    "trees with numbers of both classes": Case(
        "TreeEnsembleClassifier",
        forest("class", (0, 1), (0.3, -0.3, -0.2, 0.2), classlabels_int64s=[0, 1], post_transform="LOGISTIC"),
    ),
    **{
        f"a line between {len(labels)} classes from {len(numbers) // 3} rows, {way}": Case(
            "LinearClassifier",
            {"coefficients": numbers, "intercepts": [0.1, -0.2, 0.3][: len(numbers) // 3], "classlabels_ints": labels,
             "post_transform": way, "multi_class": 1},
        )
        for way in WAYS
        for labels, numbers in (([7, 9], VECTORS[:3]), ([7, 9], VECTORS[:6]), ([7, 8, 9], VECTORS[:9]))
    },
    **{
        f"vectors, {kernel}": Case(
            "SVMRegressor",
            {"kernel_type": kernel, "kernel_params": parameters, "n_supports": 5, "support_vectors": VECTORS,
             "coefficients": MIXED, "rho": [0.3]},
        )
        for kernel, parameters in KERNELS.items()
    },
    "vectors of one class": Case(
        "SVMRegressor",
        {"kernel_type": "RBF", "kernel_params": KERNELS["RBF"], "n_supports": 5, "support_vectors": VECTORS,
         "coefficients": MIXED, "rho": [-0.3], "one_class": 1},
    ),
    **{
        f"vectors of {len(given['vectors_per_class'])} classes, {way}": Case(
            "SVMClassifier", {**given, "kernel_type": "RBF", "kernel_params": KERNELS["RBF"], "post_transform": way}
        )
        for way in WAYS
        for given in (VECTORS_OF_TWO, VECTORS_OF_THREE)
    },
    "holes": Case("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}, HOLES),
    "whole numbers instead of one": Case(
        "Imputer", {"imputed_value_int64s": [9], "replaced_value_int64": 2}, WHOLE
    ),
    "categories": Case("OneHotEncoder", {"cats_int64s": [0, 2, 3], "zeros": 1}, WHOLE),
    "keys": Case(
        "LabelEncoder", {"keys_int64s": [1, 2, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": 7.0}, WHOLE
    ),
    "columns beside each other": Case("FeatureVectorizer", {"inputdimensions": [3, 3]}, twice=True),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_what_onnxruntime_makes_of_it(case: Case, tmp_path: Path) -> None:
    proto = case.model("whole" if "imputed_value_int64s" in case.attributes else "")
    graph = bound(tmp_path, proto, len(next(iter(case.inputs.values()))))
    check(graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = evaluate(graph, case.inputs)
    for name, wanted in zip(graph.outputs, session.run(list(graph.outputs), case.inputs), strict=True):
        assert found[name].shape == wanted.shape
        np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-6)


def test_scores_of_a_classifier_whose_labels_are_strings(tmp_path: Path) -> None:
    case = Case("LinearClassifier", {"coefficients": VECTORS[:6], "classlabels_strings": ["no", "yes"]})
    hint = "leave 'label' out of the outputs: the greatest of 'scores' says it"
    message = "LinearClassifier 'node': its labels are strings, and engines compute numbers"
    proto = case.model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert refusals(tmp_path, proto) == [("unsupported-output", message)]
    del proto.graph.output[0]
    graph = load_model(saved(tmp_path, proto)).bind(1)
    assert graph.outputs == ("scores",), hint


FOREST = forest("target", (0,), MIXED)
REFUSED = {
    "TreeEnsembleRegressor 'node': its trees ask for column 2 of [1, 2]": Case(
        "TreeEnsembleRegressor", FOREST, X[:1, :2]
    ),
    "TreeEnsembleRegressor 'node': it compares doubles, and engines compare in fp32": Case(
        "TreeEnsembleRegressor", FOREST, X[:1].astype(np.float64)
    ),
    "TreeEnsembleRegressor 'node': node 0 of tree 1 goes on to a node that is not there": Case(
        "TreeEnsembleRegressor", FOREST | {"nodes_falsenodeids": [2, 0, 4, 0, 0, 5, 0, 0]}, X[:1]
    ),
    "TreeEnsembleRegressor 'node': its trees go down more than 8 steps": Case(
        "TreeEnsembleRegressor", FOREST | {"nodes_truenodeids": [1, 0, 2, 0, 0, 1, 0, 0]}, X[:1]
    ),
    "TreeEnsembleRegressor 'node': target_weights says something of node 2 of tree 0, which is no leaf of it": Case(
        "TreeEnsembleRegressor", FOREST | {"target_nodeids": [2, 3, 4, 1, 2]}, X[:1]
    ),
    "TreeEnsembleRegressor 'node': nodes_modes has 'BRANCH_MEMBER', none of LEAF, BRANCH_LEQ, BRANCH_LT, BRANCH_GTE, "
    "BRANCH_GT, BRANCH_EQ, BRANCH_NEQ": Case(
        "TreeEnsembleRegressor", FOREST | {"nodes_modes": ["BRANCH_MEMBER"] * 8}, X[:1]
    ),
    "SVMClassifier 'node': its probabilities are found step by step until data end it": Case(
        "SVMClassifier", VECTORS_OF_TWO | {"prob_a": [1.0], "prob_b": [0.0]}, X[:1]
    ),
    "TreeEnsemble 'node': nodes_modes has 6, which asks for members of sets": Case(
        "TreeEnsemble", forest_of_5(1, nodes_modes=numpy_helper.from_array(np.uint8([6, 0, 0]))), X[:1]
    ),
    "TreeEnsemble 'node': post_transform 1: 1 and 2 are SOFTMAX and LOGISTIC in ONNX, and the other way round "
    "elsewhere": Case("TreeEnsemble", forest_of_5(2, post_transform=1), X[:1]),
    "TreeEnsemble 'node': a tree goes on to a node that is not there": Case(
        "TreeEnsemble", forest_of_5(1, nodes_truenodeids=[0, 1, 5]), X[:1]
    ),
    "LabelEncoder 'node': its values are strings, and engines compute numbers": Case(
        "LabelEncoder", {"keys_int64s": [1], "values_strings": ["one"]}, WHOLE[:1]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("message", "case"), REFUSED.items())
def test_what_is_refused(message: str, case: Case, tmp_path: Path) -> None:
    assert [said for _, said in refusals(tmp_path, case.model())] == [message]


def test_maps_are_refused_with_the_columns_that_they_are(tmp_path: Path) -> None:
    proto = Case("LinearClassifier", {"coefficients": VECTORS[:6], "classlabels_ints": [0, 1]}, X[:1]).model()
    proto.graph.node.append(node("ZipMap", "scores", "maps", "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1]))
    proto.graph.output[1].name = "maps"
    assert refusals(tmp_path, proto) == [("unsupported-op", "operator ai.onnx.ml.ZipMap is not supported: node 'zip'")]


def test_a_model_without_nodes_of_onnx_itself_need_not_say_its_opset(tmp_path: Path) -> None:
    proto = Case("TreeEnsembleRegressor", FOREST, X[:1]).model()
    assert [each.domain for each in proto.opset_import] == ["ai.onnx.ml"]
    assert load_model(saved(tmp_path, proto)).bind(1).outputs == ("y",)
