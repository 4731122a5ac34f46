"""What an engine's tensors can be, and how much a model may ask of the importer before anything is planned.

Every limit is far above what networks are, and low enough that a model within all of them is planned in seconds.
"""

from __future__ import annotations

from bolt_build.graph.ir import TensorType

MOST_RANK = 8
"""Axes of a tensor in an engine: BOLT_MAX_RANK of its ABI."""

MOST_EXTENT = (1 << 31) - 1
"""Along one axis: what is counted so is counted in 31 bits by many kernels."""

MOST_BYTES = (1 << 63) - 1
"""Bytes of a tensor: kernels count elements and bytes in 64 bits, with a sign."""

WIDEST = 8
"""Bytes of the widest element: a tensor may be stored in another type than the model's."""

MOST_ENTRIES = 1024
"""Entries of a shape, of a list of axes or of the sizes of a split."""

MOST_FILE_NODES = 40_000
"""Nodes that a model's outputs may depend on, local functions inlined. Exporters write thousands that compute shapes
and masks: Swin-V2-S has 13,688, of which fewer than a thousand compute with data."""

MOST_NODES = 10_000
"""Nodes of a graph, once all is computed that does not depend on data. Planning 4,000 takes about 10 s."""

MOST_INLINED_BYTES = 512 << 20
"""What inlining local functions may write, their constants once for each call."""

MOST_CALL_DEPTH = 50
"""Local functions that may call each other: the inliner calls itself for each."""

FREE_FOLDED_BYTES = 640 << 20
"""All constants computed together may be this large: VGG-19 with weights of ConstantOfShape has 575 MB."""

FOLD_GROWTH = 2
"""... and so many times the model's own constants beyond."""

SMALL_BYTES, SMALL_FOLDED_BYTES = 64 << 10, 64 << 20
"""A constant that is small has room among others that are, whatever large ones took: shapes follow from such."""

MOST_REPEATED_BYTES, LEAST_REPEATS = 64 << 20, 8
"""Of a constant of integers or booleans that repeats another so often: a larger one is repeated by kernels, where
anything reads it as large as that. Indices of pairs for each head and image have 200 MB a layer."""

MOST_FOLD_OPERATIONS = 1 << 32
"""Floating-point operations that computing one constant may take."""

MOST_FOLD_ELEMENTS = 1 << 26
"""Elements that computing one constant may hold in a wider type: 512 MiB."""


def too_large(type: TensorType) -> str | None:
    """Why no engine can have a tensor of this type; None where it can."""
    if type.rank > MOST_RANK:
        return f"the shape {list(type.shape)} has {type.rank} axes; an engine's tensors have at most {MOST_RANK}"
    if any(extent > MOST_EXTENT for extent in type.shape):
        return f"the shape {list(type.shape)} has an axis of more than {MOST_EXTENT}"
    if type.elements * WIDEST > MOST_BYTES:
        return f"the shape {list(type.shape)} has {type.elements} elements, whose bytes 63 bits cannot count"
    return None
