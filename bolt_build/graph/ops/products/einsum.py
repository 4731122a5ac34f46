"""ONNX Einsum: sums, transposes and matrix products, pair by pair from left to right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul, multiplied

_DOTS = "..."
_TERM = re.compile(r"([A-Za-z]|\.\.\.)*")


@dataclass(frozen=True)
class _Term:
    """A value whose axes have labels: letters, and numbers counted from the last for those of an ellipsis."""

    name: str
    labels: tuple[str, ...]


def import_einsum(node: NodeImport) -> None:
    equation = node.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(node.inputs()):
        raise ShapeError(f"equation '{equation}' has {len(texts)} terms for {len(node.inputs())} inputs")
    terms = [_term(node, index, text) for index, text in enumerate(texts)]
    _check_extents(node, terms)
    seen = [label for term in terms for label in term.labels]
    dots = tuple(sorted({label for label in seen if label.isdigit()}, key=int, reverse=True))
    once = sorted(label for label in set(seen) - {*dots} if left.count(label) == 1)
    wanted = _labels(right, dots) if arrow else (*dots, *once)
    if len(set(wanted)) != len(wanted) or not set(wanted) <= set(seen):
        raise ShapeError(f"equation '{equation}' asks for axes that no input has, or for one twice")
    result = terms[0]
    for index, term in enumerate(terms[1:], 1):
        needed = {*wanted, *(label for later in terms[index + 1 :] for label in later.labels)}
        result = _product(node, result, term, needed)
    _ordered(node, _summed(node, result, set(wanted)), wanted, 0)


def _labels(text: str, dots: tuple[str, ...]) -> tuple[str, ...]:
    if not _TERM.fullmatch(text) or text.count(_DOTS) > 1:
        raise ShapeError(f"'{text}' is no term of an equation")
    before, dotted, after = text.partition(_DOTS)
    return (*before, *(dots if dotted else ()), *after)


def _term(node: NodeImport, index: int, text: str) -> _Term:
    rank = node.type(index).rank
    hidden = rank - len(text.replace(_DOTS, ""))
    if hidden < 0 or (hidden and _DOTS not in text):
        raise ShapeError(f"term '{text}' does not fit input {index} {list(node.type(index).shape)}")
    labels = _labels(text, tuple(str(number) for number in reversed(range(hidden))))
    return _diagonal(node, _Term(node.input(index), labels))


def _diagonal(node: NodeImport, term: _Term) -> _Term:
    """Of axes with one letter the elements that have one index along all: every (n + 1)th of two axes of n as one."""
    repeated = next((label for label in term.labels if term.labels.count(label) > 1), None)
    if repeated is None:
        return term
    first, second = [axis for axis, label in enumerate(term.labels) if label == repeated][:2]
    shape = node.type_of(term.name).shape
    extent = shape[first]
    if shape[second] != extent:
        raise ShapeError(f"'{repeated}' stands for the extents {extent} and {shape[second]}")
    others = [axis for axis in range(len(shape)) if axis not in (first, second)]
    outer = tuple(shape[axis] for axis in others)
    moved = node.emit(Transpose((*others, first, second)), [term.name])
    flat = node.emit(Reshape((*outer, extent * extent)), [moved])
    zeros, ones = (0,) * (len(outer) + 1), (1,) * len(outer)
    name = node.emit(Slice(zeros, (*outer, extent), (*ones, extent + 1)), [flat])
    return _diagonal(node, _Term(name, (*(term.labels[axis] for axis in others), repeated)))


def _check_extents(node: NodeImport, terms: Sequence[_Term]) -> None:
    """Raises ShapeError where one letter stands for several extents; an ellipsis may also hide axes of extent 1."""
    found: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, node.type_of(term.name).shape, strict=True):
            known = found.setdefault(label, extent)
            if known != extent and 1 in (known, extent) and label.isdigit():
                found[label] = max(known, extent)
            elif known != extent:
                raise ShapeError(f"'{label}' stands for the extents {known} and {extent}")


def _summed(node: NodeImport, term: _Term, kept: set[str]) -> _Term:
    """Summed over the axes that are not `kept`."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    name = node.emit(Reduce("sum", axes, keepdims=False), [term.name])
    return _Term(name, tuple(label for label in term.labels if label in kept))


def _ordered(node: NodeImport, term: _Term, labels: tuple[str, ...], output: int | None = None) -> str:
    """The term's value with its axes in the order of `labels`."""
    order = tuple(term.labels.index(label) for label in labels)
    if order == tuple(range(len(order))):
        return term.name if output is None else node.emit(Identity(), [term.name], output)
    return node.emit(Transpose(order), [term.name], output)


def _product(node: NodeImport, a: _Term, b: _Term, needed: set[str]) -> _Term:
    """Over what both have and nobody needs any more it is a matrix product, one for each index that both keep."""
    a = _summed(node, a, {*needed, *b.labels})
    b = _summed(node, b, {*needed, *a.labels})
    extents: dict[str, int] = {}
    for term in (a, b):
        for label, extent in zip(term.labels, node.type_of(term.name).shape, strict=True):
            extents[label] = max(extents.get(label, 1), extent)
    shared = [label for label in a.labels if label in b.labels]
    both = tuple(label for label in shared if label in needed)
    inner = tuple(label for label in shared if label not in needed)
    rows = tuple(label for label in a.labels if label not in shared)
    columns = tuple(label for label in b.labels if label not in shared)
    if not inner:
        return _Term(_elementwise(node, a, b, (*both, *rows, *columns)), (*both, *rows, *columns))

    def matrix(term: _Term, labels: tuple[str, ...], shape: tuple[int, int]) -> str:
        name = _ordered(node, term, labels)
        own = node.type_of(name).shape
        return node.emit(Reshape((*own[: len(both)], *shape)), [name])

    depth, m, n = (prod(extents[label] for label in group) for group in (inner, rows, columns))
    left = matrix(a, (*both, *rows, *inner), (m, depth))
    right = matrix(b, (*both, *inner, *columns), (depth, n))
    product = multiplied(node, MatMul(), left, right)
    labels = (*both, *rows, *columns)
    return _Term(node.emit(Reshape(tuple(extents[label] for label in labels)), [product]), labels)


def _elementwise(node: NodeImport, a: _Term, b: _Term, labels: tuple[str, ...]) -> str:
    """Every product of an element of one with one of the other that has the same indices."""
    sides = []
    for term in (a, b):
        name = _ordered(node, term, tuple(label for label in labels if label in term.labels))
        extents = iter(node.type_of(name).shape)
        shape = tuple(next(extents) if label in term.labels else 1 for label in labels)
        sides.append(name if len(shape) == len(term.labels) else node.emit(Reshape(shape), [name]))
    return node.emit(Binary("mul"), sides)


IMPORTERS = (
    Importer(
        "Einsum",
        (12, 28),
        import_einsum,
        example=Example((Data((2, 3, 4)), Data((2, 4, 5))), (("equation", "bij,bjk->bik"),)),
    ),
)
