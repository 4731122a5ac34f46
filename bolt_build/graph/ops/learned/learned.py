"""Operators of the domain ai.onnx.ml that are arithmetic on rows, as scikit-learn's converters write them around
networks: scaling, normalisation, columns by number, numbers in the place of categories.
"""

from __future__ import annotations

from math import floor

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Where
from bolt_build.graph.ops.learned.learned_scores import DOMAIN, like, numbers, real
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Reshape

_ROWS = Data((2, 3), DType.F32)


def import_scaler(node: NodeImport) -> None:
    """(x - offset) * scale, of one number or one a column."""
    x, columns = real(node), node.type(0).shape[-1]
    for function, name in (("sub", "offset"), ("mul", "scale")):
        given = numbers(node, name)
        if given.size not in (1, columns):
            raise ShapeError(f"{name} has {given.size} numbers where rows have {columns}")
        x = node.emit(Binary(function), [x, node.helper(given, name)], 0 if name == "scale" else None)


_LENGTHS = {"MAX": "max", "L1": "l1", "L2": "l2"}


def import_normalizer(node: NodeImport) -> None:
    """Each row divided by its length; a row of length 0 stays."""
    norm = node.text("norm", "MAX")
    if norm not in _LENGTHS:
        raise Refusal("unsupported-attribute", f"norm '{norm}' is none of {', '.join(_LENGTHS)}")
    x = real(node)
    length = node.emit(Reduce(_LENGTHS[norm], (node.type_of(x).rank - 1,)), [x])
    nothing = node.emit(Compare("equal"), [length, node.scalar_like(0.0, length)])
    divisor = node.emit(Where(), [nothing, node.scalar_like(1.0, length), length])
    node.emit(Binary("div"), [x, divisor], 0)


def import_imputer(node: NodeImport) -> None:
    """Numbers in the place of those that are missing: one, or one a column."""
    x, whole = node.input(0), not node.type(0).dtype.is_float
    kind = "int64" if whole else "float"
    many, missing = f"imputed_value_{kind}s", f"replaced_value_{kind}"
    values = np.asarray(node.integers(many) if whole else node.reals(many))
    if values.size not in (1, node.type(0).shape[-1]):
        raise ShapeError(f"{many} has {values.size} numbers where rows have {node.type(0).shape[-1]}")
    absent = node.integer(missing, 0) if whole else float(node.real(missing, 0.0))
    if absent != absent:
        there = node.emit(Ask("nan"), [x])
    else:
        there = node.emit(Compare("equal"), [x, like(node, np.array(absent), x)])
    node.emit(Where(), [there, like(node, values, x), x], 0)


def _is_each(node: NodeImport, keys: Array) -> str:
    """Whether each element of input 0 is each of `keys`, in a last axis of its own."""
    wide = node.emit(Reshape((*node.type(0).shape, 1)), [node.input(0)])
    return node.emit(Compare("equal"), [wide, like(node, keys, wide)])


def import_categories(node: NodeImport) -> None:
    """1 at the number of each element's category, and 0 elsewhere, in a last axis of its own."""
    node.emit(Cast(DType.F32), [_is_each(node, np.asarray(node.integers("cats_int64s"), np.int64))], 0)


def _listed(node: NodeImport, what: str) -> Array:
    """The keys or values of a LabelEncoder. Raises Refusal."""
    if node.given(f"{what}_tensor"):
        found = node.tensor(f"{what}_tensor").reshape(-1)
    elif node.given(f"{what}_int64s"):
        found = np.asarray(node.integers(f"{what}_int64s"), np.int64)
    elif node.given(f"{what}_floats"):
        found = np.asarray(node.reals(f"{what}_floats"), np.float32)
    else:
        raise Refusal("unsupported-attribute", f"its {what} are strings, and engines compute numbers", _STRINGS)
    if found.dtype.kind not in "iuf" or np.isnan(found.astype(np.float64)).any():
        raise Refusal("unsupported-attribute", f"its {what} are not all numbers", _STRINGS)
    return found


def import_label_encoder(node: NodeImport) -> None:
    """The value of each element's key; the default of an element that is no key."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys.size != values.size or not keys.size:
        raise ShapeError(f"{keys.size} keys and {values.size} values")
    if node.given("default_tensor"):
        default = node.tensor("default_tensor").reshape(-1)[0]
    else:
        default = node.integer("default_int64", -1) if values.dtype.kind in "iu" else node.real("default_float", -0.0)
    rank, found = node.type(0).rank, _is_each(node, keys)
    place = node.emit(Places(rank, 1), [node.emit(Cast(DType.I32), [found])])
    known = node.emit(Reduce("max", (rank,), keepdims=False), [node.emit(Cast(DType.I32), [found])])
    value = node.emit(Gather(0), [node.helper(values, "values"), node.emit(Reshape(node.type(0).shape), [place])])
    has = node.emit(Cast(DType.BOOL), [known])
    node.emit(Where(), [has, value, like(node, np.array(default), value)], 0)


_STRINGS = "encode strings in front of the engine, and begin or end the model there (model.inputs, model.outputs)"


def import_features(node: NodeImport) -> None:
    """Columns of all inputs beside each other."""
    parts = []
    for index in range(node.count()):
        x = real(node, index)
        parts.append(x if node.type_of(x).rank == 2 else node.emit(Reshape((1, node.type_of(x).elements)), [x]))
    widths = tuple(node.type_of(each).shape[1] for each in parts)
    if node.given("inputdimensions") and node.integers("inputdimensions") != widths:
        raise ShapeError(f"inputs of {list(widths)} columns are not those of inputdimensions")
    node.emit(Concat(1), parts, 0)


def import_columns(node: NodeImport) -> None:
    """Columns of rows by their numbers; of one row without another axis, one row."""
    x, wanted = node.input(0), node.emit(Reshape((node.type(1).elements,)), [node.input(1)])
    if node.type(0).rank == 1:
        x = node.emit(Reshape((1, node.type(0).shape[0])), [x])
    node.emit(Gather(node.type_of(x).rank - 1), [x, wanted], 0)


def import_binarizer(node: NodeImport) -> None:
    """1 where x is above the threshold, and 0 elsewhere."""
    x, threshold = node.input(0), node.real("threshold", 0.0)
    if not node.type(0).dtype.is_float:
        threshold = floor(threshold)  # what an integer is above of
    above = node.emit(Compare("greater"), [x, node.scalar_like(threshold, x)])
    node.emit(Cast(node.type(0).dtype), [above], 0)


IMPORTERS = (
    Importer(
        "Scaler", (1,), import_scaler, domain=DOMAIN,
        example=Example((_ROWS,), (("offset", (0.5,)), ("scale", (2.0,)))),
    ),
    Importer("Normalizer", (1,), import_normalizer, domain=DOMAIN, example=Example((_ROWS,), (("norm", "L2"),))),
    Importer(
        "ArrayFeatureExtractor", (1,), import_columns, domain=DOMAIN, moves=True,
        example=Example((_ROWS, Integers((0, 2)))),
    ),
    Importer(
        "Imputer", (1,), import_imputer, domain=DOMAIN, ignores=("replaced_value_int64", "replaced_value_float"),
        example=Example((_ROWS,), (("imputed_value_floats", (0.5,)),)),
    ),
    Importer(
        "OneHotEncoder", (1,), import_categories, domain=DOMAIN, ignores=("zeros",), note="categories are integers",
        example=Example((_ROWS,), (("cats_int64s", (0, 1)),)),
    ),
    Importer(
        "LabelEncoder", (1, 2, 4), import_label_encoder, domain=DOMAIN, note="of numbers",
        ignores=("default_string", "default_int64", "default_float"),
        example=Example((_ROWS,), (("keys_floats", (0.0, 1.0)), ("values_floats", (2.0, 3.0)))),
    ),
    Importer("FeatureVectorizer", (1,), import_features, domain=DOMAIN, example=Example((_ROWS, _ROWS))),
    Importer("Binarizer", (1,), import_binarizer, domain=DOMAIN, example=Example((_ROWS,))),
)  # fmt: skip
