"""Operators that the domain com.microsoft had before ONNX did: PyTorch wrote them into models of older opsets.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.images.grid_sample import import_grid_sample
from bolt_build.graph.ops.moves.expand import import_trilu
from bolt_build.graph.ops.moves.gather import import_gather_nd
from bolt_build.graph.ops.moves.moving import padded
from bolt_build.graph.ops.moves.shape import Reshape

_DOMAIN = "com.microsoft"


def import_contrib_pad(node: NodeImport) -> None:
    """Of pads for all axes, as [2 rank] or [1, 2 rank]."""
    value = node.static_number(2, "the padding value") if node.has(2) else 0.0
    pads = node.static(1, "the list of pads")
    if pads.dtype.kind != "i" or pads.size != 2 * node.type(0).rank:
        raise ShapeError(f"pads {list(pads.shape)} must be two integers for each of {node.type(0).rank} axes")
    padded(node, tuple(int(each) for each in pads.reshape(-1)), value)


def import_expand_dims(node: NodeImport) -> None:
    """One axis more, of extent 1."""
    shape, axis = node.type(0).shape, int(node.static_number(1, "the axis"))
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ShapeError(f"axis {axis} cannot be put into a tensor of rank {len(shape)}")
    axis += len(shape) + 1 if axis < 0 else 0
    node.emit(Reshape((*shape[:axis], 1, *shape[axis:])), [node.input(0)], 0)


IMPORTERS = (
    Importer(
        "Pad", (1,), import_contrib_pad, domain=_DOMAIN, note="constant pads and padding value",
        example=Example((Data((2, 4)), Integers((0, 1, 0, 1)))),
    ),
    Importer(
        "ExpandDims", (1,), import_expand_dims, domain=_DOMAIN, note="a constant axis",
        example=Example((Data((2, 4)), Integers((1,)))),
    ),
    Importer(
        "Trilu", (1,), import_trilu, domain=_DOMAIN, note="a constant diagonal",
        example=Example((Data((2, 4, 4)), Integers((0,)))),
    ),
    Importer(
        "GatherND", (1,), import_gather_nd, domain=_DOMAIN,
        example=Example((Data((8, 4)), Data((3, 1), DType.I64))),
    ),
    Importer(
        "GridSample", (1,), import_grid_sample, domain=_DOMAIN,
        example=Example((Data(IMAGE), Data((1, 3, 3, 2)))),
    ),
)  # fmt: skip
