"""Operators that the domain com.microsoft had before ONNX did: PyTorch wrote them into models of older opsets.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.graph.example import IMAGE, Data, Example, Integers
from bolt_build.graph.importing import Importer
from bolt_build.graph.ops.images.grid_sample import import_grid_sample
from bolt_build.graph.ops.moves.expand import import_trilu
from bolt_build.graph.ops.moves.gather import import_gather_nd

_DOMAIN = "com.microsoft"

IMPORTERS = (
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
