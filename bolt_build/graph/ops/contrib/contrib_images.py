"""NhwcMaxPool of the domain com.microsoft: of images of bytes whose channels come last. onnxruntime's optimiser writes
it for CPUs.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Cast, Transpose
from bolt_build.graph.ops.products.conv import import_window

_DOMAIN = "com.microsoft"


def import_nhwc_max_pool(node: NodeImport) -> None:
    rank, to = node.type(0).rank, node.type(0).dtype
    if rank < 3:
        raise ShapeError(f"{list(node.type(0).shape)} is no image: it has fewer than three axes")
    image = node.emit(Transpose((0, rank - 1, *range(1, rank - 1))), [node.input(0)])
    pool = Pool("max", *import_window(node, image), bool(node.integer("ceil_mode", 0)))
    made = node.emit(Cast(to), [node.emit(pool, [node.emit(Cast(DType.F32), [image])])])
    node.emit(Transpose((0, *range(2, rank), 1)), [made], 0)


IMPORTERS = (
    Importer(
        "NhwcMaxPool", (1,), import_nhwc_max_pool, domain=_DOMAIN,
        example=Example((Data(IMAGE, DType.U8),), (("kernel_shape", (2, 2)),)),
    ),
)  # fmt: skip
