"""Elements put at places that are known at run time; see `graph.ops.moves.gather` for indices that lie outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import expect_elementwise, expect_tuples, within
from bolt_build.graph.ops.moves.shape import Pad, Reshape
from bolt_build.graph.ops.operands import expect_count, expect_same_dtype

_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
REDUCTIONS = tuple(_REDUCTIONS)


def _check(reduction: str, inputs: Sequence[TensorType]) -> None:
    expect_count(inputs, 3)
    expect_same_dtype((inputs[0], inputs[2]))
    if reduction not in REDUCTIONS:
        raise ShapeError(f"reduction '{reduction}' is none of {', '.join(REDUCTIONS)}")
    if reduction != "none" and inputs[0].dtype is DType.BOOL:
        raise ShapeError(f"booleans have no reduction '{reduction}'")


@dataclass(frozen=True)
class ScatterElements(Op):
    """Of inputs (data, indices, updates): data, with updates[i][j] at data[indices[i][j]][j] for `axis` 0. `reduction`
    says what becomes of an element that one or several updates meet: "none" (the last one), "add", "mul", "max", "min".
    """

    kind = "scatter_elements"
    moves = True
    axis: int
    reduction: str = "none"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _check(self.reduction, inputs)
        expect_elementwise(self.axis, inputs[0], inputs[1])
        if inputs[1].shape != inputs[2].shape:
            raise ShapeError(f"{list(inputs[2].shape)} updates have indices of {list(inputs[1].shape)}")
        return (inputs[0],)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        made, updates = inputs[0].copy(), inputs[2]
        indices = within(inputs[1], made.shape[self.axis])
        with np.errstate(invalid="ignore"):  # infinity less infinity is no number
            for place in np.ndindex(*indices.shape):
                at = (*place[: self.axis], indices[place], *place[self.axis + 1 :])
                made[at] = _REDUCTIONS[self.reduction](made[at], updates[place])
        return (made,)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        return {1: inputs[0].shape[self.axis]}


@dataclass(frozen=True)
class ScatterND(Op):
    """Of inputs (data, indices, updates): data, with each update at the slice that a row of the indices' last axis
    names, behind `batch_dims` axes that all three have in common. `reduction` as in ScatterElements."""

    kind = "scatter_nd"
    moves = True
    reduction: str = "none"
    batch_dims: int = 0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        _check(self.reduction, inputs)
        data, indices, updates = inputs
        expect_tuples(data, indices, self.batch_dims)
        wanted = (*indices.shape[:-1], *data.shape[self.batch_dims + indices.shape[-1] :])
        if updates.shape != wanted:
            raise ShapeError(f"updates of {list(updates.shape)} where {list(wanted)} are wanted")
        return (data,)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, indices, updates = inputs
        shared, depth, made = data.shape[: self.batch_dims], indices.shape[-1], data.copy()
        rows = indices.reshape(*shared, -1, depth)
        places = np.stack([within(rows[..., i], data.shape[self.batch_dims + i]) for i in range(depth)], -1)
        slices = updates.reshape(*rows.shape[:-1], *data.shape[self.batch_dims + depth :])
        for row in np.ndindex(*rows.shape[:-1]):
            at = (*row[:-1], *places[row])
            made[at] = _REDUCTIONS[self.reduction](made[at], slices[row])
        return (made,)

    def indices(self, inputs: Sequence[TensorType]) -> Mapping[int, int]:
        shape, first = inputs[0].shape, self.batch_dims
        return {1: min(shape[first : first + inputs[1].shape[-1]])}


def import_scatter_elements(node: NodeImport) -> None:
    op = ScatterElements(node.axis(node.integer("axis", 0), node.type(0).rank), node.text("reduction", "none"))
    node.emit(op, [node.input(0), node.input(1), node.input(2)], 0)


def import_scatter_nd(node: NodeImport) -> None:
    node.emit(ScatterND(node.text("reduction", "none")), [node.input(0), node.input(1), node.input(2)], 0)


def import_tensor_scatter(node: NodeImport) -> None:
    """Updates of a cache along one axis, from a place of each row of the batch on, or from its beginning. Circular ones
    go on at the beginning; others that reach behind the end name a place outside."""
    shape, new = node.type(0).shape, node.type(1).shape
    axis, mode = node.axis(node.integer("axis", -2), len(shape)), node.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise Refusal("unsupported-attribute", f"mode '{mode}' is none of linear, circular")
    if axis == 0 or new != (*shape[:axis], new[axis] if len(new) == len(shape) else 0, *shape[axis + 1 :]):
        raise ShapeError(f"updates {list(new)} do not fit {list(shape)} but for axis {axis}, which is not the first")
    if new[axis] > shape[axis]:
        raise ShapeError(f"{new[axis]} updates are more than the {shape[axis]} places")
    along = [1] * len(shape)
    along[axis] = new[axis]
    places = node.helper(np.arange(new[axis], dtype=np.int64).reshape(along), "places")
    if node.has(2):
        if node.type(2).shape != (shape[0],) or node.type(2).dtype is not DType.I64:
            raise ShapeError(f"write_indices {list(node.type(2).shape)} must be i64[{shape[0]}]")
        begin = node.emit(Reshape((shape[0], *(1,) * (len(shape) - 1))), [node.input(2)])
        places = node.emit(Binary("add"), [begin, places])
        if mode == "circular":
            places = node.emit(Binary("mod"), [places, node.helper(np.asarray(shape[axis], np.int64), "extent")])
    node.emit(ScatterElements(axis), [node.input(0), node.emit(Expand(new), [places]), node.input(1)], 0)


def import_max_unpool(node: NodeImport) -> None:
    """A scatter into zeros. They are x with all of it cropped away: no zeros are stored in the engine."""
    shape, kernel = node.type(0).shape, node.integers("kernel_shape")
    axes = len(kernel)
    strides, pads = node.integers("strides", (1,) * axes), node.integers("pads", (0,) * 2 * axes)
    if len(shape) != axes + 2 or len(strides) != axes or len(pads) != 2 * axes or node.type(1).shape != shape:
        raise ShapeError(f"x {list(shape)} and indices {list(node.type(1).shape)} do not fit windows of {axes} axes")
    spatial = [
        (shape[axis + 2] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axes + axis] for axis in range(axes)
    ]
    whole = (*shape[:2], *spatial)
    if min(whole) < 1:
        raise ShapeError(f"windows of {list(kernel)} make {list(whole)} of {list(shape)}")
    if node.has(2) and (asked := node.static_list(2, "the shape of the output")) != whole:
        raise Refusal(
            "unsupported-op",
            f"the output {list(asked)} is not {list(whole)}: of which the indices are, runtimes disagree",
        )
    flat = node.emit(Reshape((prod(shape),)), [node.input(0)])
    indices = node.emit(Reshape((prod(shape),)), [node.input(1)])
    zeros = node.emit(Pad((-prod(shape),), (prod(whole),)), [flat])
    node.emit(Reshape(whole), [node.emit(ScatterElements(0), [zeros, indices, flat])], 0)


_TABLE = Data((8, 4))

IMPORTERS = (
    Importer(
        "TensorScatter",
        (24,),
        import_tensor_scatter,
        example=Example((Data((1, 2, 8, 4)), Data((1, 2, 3, 4)), Data((1,), DType.I64))),
    ),
    Importer(
        "Scatter",
        (9, 11),
        import_scatter_elements,
        example=Example((_TABLE, Data((3, 4), DType.I64), Data((3, 4)))),
    ),
    Importer(
        "ScatterElements",
        (11, 13, 16, 18),
        import_scatter_elements,
        example=Example((_TABLE, Data((3, 4), DType.I64), Data((3, 4)))),
    ),
    Importer(
        "MaxUnpool",
        (9, 11, 22),
        import_max_unpool,
        example=Example((Data((1, 4, 3, 3)), Data((1, 4, 3, 3), DType.I64)), (("kernel_shape", (2, 2)),)),
        note="the output's shape as its windows make it",
    ),
    Importer(
        "ScatterND",
        (11, 13, 16, 18),
        import_scatter_nd,
        example=Example((_TABLE, Data((3, 1), DType.I64), Data((3, 4)))),
    ),
)
