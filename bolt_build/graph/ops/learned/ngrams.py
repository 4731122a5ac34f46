"""How often n-grams stand in rows of integers: ONNX's TfIdfVectorizer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Reshape, Slice

_MODES = ("TF", "IDF", "TFIDF")
_MOST_COLUMNS = 1 << 24
_STRINGS = "encode strings in front of the engine, and begin the model there (model.inputs)"


def import_ngrams(node: NodeImport) -> None:
    """Each window of a row is compared with each n-gram of its length, and what is equal is counted. Elements of a
    window are 1 to `max_skip_count` + 1 places apart, and single ones are counted once. By the mode IDF it
    matters alone whether an n-gram is there."""
    mode = node.text("mode")
    if mode not in _MODES:
        raise Refusal("unsupported-attribute", f"mode '{mode}' is none of {', '.join(_MODES)}")
    if node.given("pool_strings"):
        raise Refusal("unsupported-attribute", "its n-grams are of strings, and engines compute numbers", _STRINGS)
    columns, shape = node.integers("ngram_indexes"), node.type(0).shape
    weights = np.asarray(node.reals("weights") if node.given("weights") else [1.0] * len(columns), np.float32)
    if len(shape) not in (1, 2) or not columns or min(columns) < 0 or len(weights) != len(columns):
        raise ShapeError(f"{len(columns)} n-grams with {len(weights)} weights in {list(shape)}")
    if max(columns) >= _MOST_COLUMNS:
        raise Refusal("model-too-large", f"an n-gram has column {max(columns)}; supported are {_MOST_COLUMNS}")
    counts = _counted(node)
    if mode == "IDF":
        counts = node.emit(Compare("greater"), [counts, node.scalar_like(0.0, counts)])
    found = node.emit(Cast(DType.F32), [counts])
    if mode != "TF":
        found = node.emit(Binary("mul"), [found, node.helper(weights, "weights")])
    node.emit(Reshape((*shape[:-1], max(columns) + 1)), [_placed(node, found, columns)], 0)


def _counted(node: NodeImport) -> str:
    """[rows, n-grams] of i32: how often each of the pool is in each row; 0 of those that are not looked for."""
    shortest, longest = node.integer("min_gram_length"), node.integer("max_gram_length")
    extent = node.type(0).shape[-1]
    rows, apart = node.type(0).elements // max(extent, 1), min(node.integer("max_skip_count") + 1, extent)
    x = node.emit(Reshape((rows, extent)), [node.input(0)])
    parts = []
    for length, grams in enumerate(_pools(node), 1):
        steps = range(1, 1 + (apart if length > 1 else 1)) if shortest <= length <= longest else ()
        found = [each for step in steps if (each := _equal(node, x, grams, step)) is not None]
        total = found[0] if found else node.helper(np.zeros((rows, len(grams)), np.int32), "none")
        for each in found[1:]:
            total = node.emit(Binary("add"), [total, each])
        parts += [total] if len(grams) else []
    return node.emit(Concat(1), parts) if len(parts) > 1 else parts[0]


def _pools(node: NodeImport) -> list[Array]:
    """The pool's n-grams of 1, 2, ... elements, a row each. Raises ShapeError."""
    pool, begins = np.asarray(node.integers("pool_int64s"), np.int64), node.integers("ngram_counts")
    parts = [pool[begin:end] for begin, end in pairwise((*begins, len(pool)))]
    ordered = all(0 <= begin <= end for begin, end in pairwise((*begins, len(pool))))
    many = len(node.integers("ngram_indexes"))
    if not ordered or any(len(part) % length for length, part in enumerate(parts, 1)):
        raise ShapeError(f"n-grams do not begin at {list(begins)} in a pool of {len(pool)} elements")
    found = [part.reshape(-1, length) for length, part in enumerate(parts, 1)]
    if sum(map(len, found)) != many:
        raise ShapeError(f"a pool of {sum(map(len, found))} n-grams has {many} columns")
    return found


def _equal(node: NodeImport, x: str, grams: Array, step: int) -> str | None:
    """[rows, n-grams] of i32: windows of elements `step` apart that each is equal to; None where no window fits."""
    rows, extent = node.type_of(x).shape
    windows = extent - (grams.shape[1] - 1) * step
    if windows < 1 or not len(grams):
        return None
    whole = ""
    for place, keys in enumerate(grams.T):
        of = node.emit(Slice((0, place * step), (rows, windows), (1, 1)), [x])
        wide, dtype = node.emit(Reshape((rows, windows, 1)), [of]), numpy_dtype(node.type_of(x).dtype)
        same = node.emit(Compare("equal"), [wide, node.helper(keys.astype(dtype), "keys")])
        whole = node.emit(Logic("and"), [whole, same]) if whole else same
    return node.emit(Reduce("sum", (1,), False), [node.emit(Cast(DType.I32), [whole])])


def _placed(node: NodeImport, counts: str, columns: tuple[int, ...]) -> str:
    """[rows, columns]: of each column what its own n-grams have, added up."""
    rows, many = node.type_of(counts).shape
    own: list[list[int]] = [[] for _ in range(max(columns) + 1)]
    for gram, column in enumerate(columns):
        own[column].append(gram)
    turns = max(map(len, own))
    if any(len(each) < turns for each in own):
        counts = node.emit(Concat(1), [counts, node.helper(np.zeros((rows, 1), np.float32), "none")])
    total = ""
    for turn in range(turns):
        places = np.asarray([each[turn] if turn < len(each) else many for each in own])
        found = node.emit(Gather(1), [counts, node.helper(places, "places")])
        total = node.emit(Binary("add"), [total, found]) if total else found
    return total


IMPORTERS = (
    Importer(
        "TfIdfVectorizer", (9,), import_ngrams, note="of integers",
        example=Example(
            (Data((2, 6), DType.I32),),
            (
                ("mode", "TF"), ("min_gram_length", 1), ("max_gram_length", 2), ("max_skip_count", 1),
                ("ngram_counts", (0, 1)), ("ngram_indexes", (0, 1)), ("pool_int64s", (1, 2, 3)),
            ),
        ),
    ),
)  # fmt: skip
