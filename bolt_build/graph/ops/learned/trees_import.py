"""Ensembles of trees of the domain ai.onnx.ml, as boosted trees and forests are exported."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example, Listed
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Where
from bolt_build.graph.ops.learned.learned_scores import DOMAIN, SCORES, Labels, of_two, real, transformed, way_of
from bolt_build.graph.ops.learned.trees import LEAF, MISSING, MOST_DEPTH, QUESTIONS, TreeLeaves
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather

_SUMS = {"SUM": "sum", "AVERAGE": "mean", "MIN": "min", "MAX": "max"}
_SUMS_OF_5 = ("mean", "sum", "min", "max")


@dataclass(frozen=True)
class _Forest:
    """The tables of `TreeLeaves`, and what stands at the leaves: [leaves, targets], of which `given` were named."""

    thresholds: Array
    nodes: Array
    roots: Array
    depth: int
    leaves: Array
    given: Array


def _table(node: NodeImport, prefix: str, name: str) -> Array:
    """Numbers that are an attribute of floats, or from version 3 on a tensor that may be of doubles. Raises Refusal."""
    tensor = f"{prefix}_{name}_as_tensor"
    if node.given(tensor):
        return _single(node, tensor)
    return np.asarray(node.reals(f"{prefix}_{name}"), np.float32)


def _listed(node: NodeImport, name: str, count: int) -> Array:
    found = np.asarray(node.integers(name), np.int64)
    if found.size != count:
        raise ShapeError(f"{name} has {found.size} numbers for {count} nodes")
    return found


def _forest(node: NodeImport, prefix: str, targets: int) -> _Forest:
    """The trees of attributes of versions 1 to 3; `prefix` is what those of the leaves begin with. Raises Refusal and
    ShapeError."""
    modes = node.texts("nodes_modes")
    count = len(modes)
    trees, ids, columns, yes, no = (
        _listed(node, f"nodes_{each}", count)
        for each in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    thresholds = _table(node, "nodes", "values")
    unknown = next((mode for mode in modes if mode not in QUESTIONS), None)
    if unknown is not None:
        raise Refusal("unsupported-attribute", f"nodes_modes has '{unknown}', none of {', '.join(QUESTIONS)}")
    if thresholds.size != count:
        raise ShapeError(f"nodes_values has {thresholds.size} numbers for {count} nodes")
    questions = np.asarray([QUESTIONS.index(mode) for mode in modes], np.int64)
    place = {key: index for index, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    inner = questions != LEAF
    nodes = np.zeros((count, 4), np.int32)
    for index in np.flatnonzero(inner):
        follow = [place.get((int(trees[index]), int(each[index]))) for each in (yes, no)]
        if None in follow:
            raise ShapeError(f"node {ids[index]} of tree {trees[index]} goes on to a node that is not there")
        nodes[index] = (questions[index], columns[index], *follow)
    if node.given("nodes_missing_value_tracks_true"):
        nodes[inner, 0] += MISSING * (_listed(node, "nodes_missing_value_tracks_true", count)[inner] != 0)
    leaves, given = _weights(node, prefix, place, nodes, targets)
    roots, depth = _roots(nodes, trees)
    return _Forest(thresholds, nodes, roots, depth, leaves, given)


def _weights(
    node: NodeImport, prefix: str, place: dict[tuple[int, int], int], nodes: Array, targets: int
) -> tuple[Array, Array]:
    """What stands at the leaves, and where something was said of it; leaves' columns become rows of these."""
    weights = _table(node, prefix, "weights")
    trees, ids, columns = (_listed(node, f"{prefix}_{each}", weights.size) for each in ("treeids", "nodeids", "ids"))
    ends = np.flatnonzero(nodes[:, 0] == LEAF)
    nodes[ends, 1] = np.arange(ends.size)
    leaves, given = np.zeros((ends.size, targets), np.float32), np.zeros((ends.size, targets), np.bool_)
    for tree, number, column, weight in zip(trees.tolist(), ids.tolist(), columns.tolist(), weights, strict=True):
        at = place.get((tree, number))
        if at is None or nodes[at, 0] != LEAF or not 0 <= column < targets:
            raise ShapeError(f"{prefix}_weights says something of node {number} of tree {tree}, which is no leaf of it")
        leaves[nodes[at, 1], column] += weight
        given[nodes[at, 1], column] = True
    return leaves, given


def _roots(nodes: Array, trees: Array) -> tuple[Array, int]:
    """The first node of each tree that no other follows, and the most steps from there. Raises ShapeError."""
    inner = nodes[:, 0] != LEAF
    followed = np.zeros(len(nodes), np.bool_)
    followed[nodes[inner, 2:].reshape(-1)] = True
    _, roots = np.unique(np.where(followed, -1 - np.arange(len(trees)), trees), return_index=True)
    roots = np.sort(roots[~followed[roots]])
    return roots.astype(np.int32), _depth(nodes, roots)


def _depth(nodes: Array, roots: Array) -> int:
    """The most steps from `roots` to a leaf. Raises ShapeError."""
    inner, at, depth = nodes[:, 0] != LEAF, roots, 0
    while (at := at[inner[at]]).size:
        at, depth = np.unique(nodes[at, 2:].reshape(-1)), depth + 1
        if depth > min(len(nodes), MOST_DEPTH):
            raise ShapeError(f"its trees go down more than {min(len(nodes), MOST_DEPTH)} steps")
    return depth


def _single(node: NodeImport, name: str) -> Array:
    """A tensor of thresholds or weights, which must be in fp32. Raises Refusal."""
    found = node.tensor(name).reshape(-1)
    if found.dtype != np.float32:
        message = f"{name} is of {found.dtype}, and engines compare in fp32"
        raise Refusal("unsupported-dtype", message, "convert the model from data of float32")
    return found


def _forest_of_5(node: NodeImport, targets: int) -> _Forest:
    """The trees of version 5: nodes that ask stand apart from leaves, of which each has the number of one target.
    Raises Refusal and ShapeError."""
    splits, weights = _single(node, "nodes_splits"), _single(node, "leaf_weights")
    inner, leaves = splits.size, weights.size
    modes = node.tensor("nodes_modes").reshape(-1).astype(np.int64)
    if (modes >= len(QUESTIONS) - 1).any():
        raise Refusal("unsupported-attribute", "nodes_modes has 6, which asks for members of sets")
    columns, yes, no = (_listed(node, f"nodes_{each}", inner) for each in ("featureids", "truenodeids", "falsenodeids"))
    ends = [_listed(node, f"nodes_{each}leafs", inner) != 0 for each in ("true", "false")]
    follow = np.stack((yes, no), 1) + inner * np.stack(ends, 1)
    roots, of = np.asarray(node.integers("tree_roots")), _listed(node, "leaf_targetids", leaves)
    for what, places, most in (("goes on to", follow, inner + leaves), ("begins at", roots, inner)):
        if modes.size != inner or places.size == 0 or places.min() < 0 or places.max() >= most:
            raise ShapeError(f"a tree {what} a node that is not there")
    if ((of < 0) | (of >= targets)).any():
        raise ShapeError(f"leaf_targetids names a target that is none of {targets}")
    nodes = np.zeros((inner + leaves, 4), np.int32)
    nodes[:inner] = np.concatenate((modes[:, None] + 1, columns[:, None], follow), 1)
    if node.given("nodes_missing_value_tracks_true"):
        nodes[:inner, 0] += MISSING * (_listed(node, "nodes_missing_value_tracks_true", inner) != 0)
    nodes[inner:, 1] = np.arange(leaves)
    numbers, given = np.zeros((leaves, targets), np.float32), np.zeros((leaves, targets), np.bool_)
    numbers[np.arange(leaves), of], given[np.arange(leaves), of] = weights, True
    thresholds = np.concatenate((splits, np.zeros(leaves, np.float32)))
    return _Forest(thresholds, nodes, roots.astype(np.int32), _depth(nodes, roots), numbers, given)


def _summed(node: NodeImport, forest: _Forest, way: str) -> str:
    """What the leaves of each row come to, [N, targets]. Raises ShapeError."""
    if node.type(0).dtype is DType.F64:
        message = "it compares doubles, and engines compare in fp32"
        raise Refusal("unsupported-dtype", message, "convert the model from data of float32")
    inner = forest.nodes[forest.nodes[:, 0] != LEAF]
    if node.type(0).rank != 2 or (inner.size and inner[:, 1].max() >= node.type(0).shape[1]):
        raise ShapeError(f"its trees ask for column {inner[:, 1].max(initial=0)} of {list(node.type(0).shape)}")
    leaves = forest.leaves
    if way in ("min", "max"):  # of what was said alone
        leaves = np.where(forest.given, leaves, np.float32(np.inf if way == "min" else -np.inf))
    tables = [node.helper(each, name) for each, name in (
        (forest.thresholds, "thresholds"), (forest.nodes, "nodes"), (forest.roots, "roots"),
    )]  # fmt: skip
    ends = node.emit(TreeLeaves(forest.depth), [real(node), *tables])
    found = node.emit(Gather(0), [node.helper(leaves, "leaves"), ends])
    reduced = node.emit(Reduce(way, (1,), keepdims=False), [found])
    if way not in ("min", "max") or forest.given.all():
        return reduced
    nothing = node.emit(Ask("inf"), [reduced])  # of none of the leaves
    return node.emit(Where(), [nothing, node.scalar_like(0.0, reduced), reduced])


def _based(node: NodeImport, scores: str, columns: int) -> str:
    """Scores with what each begins at. Raises ShapeError."""
    tensor = node.given("base_values_as_tensor")
    if not tensor and not node.given("base_values"):
        return scores
    base = node.tensor("base_values_as_tensor") if tensor else np.asarray(node.reals("base_values"))
    if base.size == 0:
        return scores
    if base.size != columns:
        raise ShapeError(f"base_values has {base.size} numbers for {columns} columns")
    return node.emit(Binary("add"), [scores, node.helper(base.reshape(-1).astype(np.float32), "base")])


def import_tree_regressor(node: NodeImport) -> None:
    targets, name = node.integer("n_targets", 1), node.text("aggregate_function", "SUM")
    if name not in _SUMS:
        raise Refusal("unsupported-attribute", f"aggregate_function '{name}' is none of {', '.join(_SUMS)}")
    scores = _based(node, _summed(node, _forest(node, "target", targets), _SUMS[name]), targets)
    way = way_of(node)
    transformed(node, scores, way if targets > 1 else "NONE", 0)  # onnxruntime leaves a single number as it is


def import_trees(node: NodeImport) -> None:
    """Version 5, whose words are numbers."""
    words = (("n_targets", 1), ("aggregate_function", 1), ("post_transform", 0))
    targets, how, after = (node.integer(*each) for each in words)
    if not 0 <= how < len(_SUMS_OF_5):
        raise Refusal("unsupported-attribute", f"aggregate_function {how} is none of 0 to {len(_SUMS_OF_5) - 1}")
    if after != 0:
        message = f"post_transform {after}: 1 and 2 are SOFTMAX and LOGISTIC in ONNX, and the other way round elsewhere"
        raise Refusal("unsupported-attribute", message, "write the Softmax or Sigmoid behind it as a node")
    transformed(node, _summed(node, _forest_of_5(node, targets), _SUMS_OF_5[how]), "NONE", 0)


def import_tree_classifier(node: NodeImport) -> None:
    """Of two classes the trees may have the numbers of one, which is then the second."""
    labels, way = Labels(node, "classlabels_int64s", "classlabels_strings"), way_of(node)
    named = set(node.integers("class_ids"))
    if labels.count == 2 and named == {0}:
        forest = _forest(node, "class", 1)
        score = _based(node, _summed(node, forest, "sum"), 1)
        apart = bool((forest.leaves < 0).any())
        labels.of_two(score, 0.0 if apart else 0.5)
        of_two(node, score, way, apart=apart)
        return
    if labels.count == 2 and (node.given("base_values") or len(named) < 2):
        message = "the numbers of two classes begin somewhere (base_values), or are those of class 1 alone"
        raise Refusal("unsupported-attribute", message, "give the numbers of both classes, or those of class 0 alone")
    scores = _based(node, _summed(node, _forest(node, "class", labels.count), "sum"), labels.count)
    labels.of_best(scores)
    transformed(node, scores, way, SCORES)


_STUMP = (
    ("nodes_treeids", (0, 0, 0)), ("nodes_nodeids", (0, 1, 2)), ("nodes_featureids", (1, 0, 0)),
    ("nodes_values", (0.5, 0.0, 0.0)), ("nodes_truenodeids", (1, 0, 0)), ("nodes_falsenodeids", (2, 0, 0)),
    ("nodes_modes", ("BRANCH_LEQ", "LEAF", "LEAF")),
)  # fmt: skip


def _leaves(prefix: str) -> tuple[tuple[str, tuple[int, ...] | tuple[float, ...]], ...]:
    places = ((f"{prefix}_treeids", (0, 0)), (f"{prefix}_nodeids", (1, 2)), (f"{prefix}_ids", (0, 0)))
    return (*places, (f"{prefix}_weights", (1.0, -1.0)))


_ROWS = Data((2, 3), DType.F32)
_UNREAD = ("nodes_hitrates", "nodes_hitrates_as_tensor")

IMPORTERS = (
    Importer(
        "TreeEnsemble", (5,), import_trees, domain=DOMAIN, ignores=("nodes_hitrates", "membership_values"),
        note="in fp32; no sets of members; post_transform: 0",
        example=Example(
            (_ROWS,),
            (("tree_roots", (0,)), ("nodes_splits", Listed((0.5,), DType.F32)), ("nodes_modes", Listed((0,), DType.U8)),
             ("nodes_featureids", (1,)), ("nodes_truenodeids", (0,)), ("nodes_trueleafs", (1,)),
             ("nodes_falsenodeids", (1,)), ("nodes_falseleafs", (1,)), ("leaf_targetids", (0, 0)),
             ("leaf_weights", Listed((1.0, -1.0), DType.F32))),
        ),
    ),
    Importer(
        "TreeEnsembleRegressor", (1, 3), import_tree_regressor, domain=DOMAIN, ignores=_UNREAD,
        note="in fp32; post_transform: NONE, SOFTMAX, LOGISTIC",
        example=Example((_ROWS,), (*_STUMP, *_leaves("target"))),
    ),
    Importer(
        "TreeEnsembleClassifier", (1, 3), import_tree_classifier, domain=DOMAIN, ignores=_UNREAD,
        note="in fp32; labels are integers; post_transform: NONE, SOFTMAX, LOGISTIC",
        example=Example((_ROWS,), (*_STUMP, *_leaves("class"), ("classlabels_int64s", (0, 1))), outputs=2),
    ),
)  # fmt: skip
