"""Sparse tensors of a model as dense ones: what is cut out of a model knows no others."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper

from bolt_build.graph.onnx_model.onnx_parse import subgraphs


def without_sparse(model: ModelProto) -> ModelProto:
    """The model with its sparse initializers and constants written densely; itself without any. They were read already,
    so their places are sound."""
    if not _has_sparse(model.graph):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    _write_densely(changed.graph)
    return changed


def _has_sparse(graph: GraphProto) -> bool:
    attributes = [each for node in graph.node for each in node.attribute]
    return (
        len(graph.sparse_initializer) > 0
        or any(each.HasField("sparse_tensor") for each in attributes)
        or any(_has_sparse(inner) for each in attributes for inner in subgraphs(each))
    )


def _write_densely(graph: GraphProto) -> None:
    graph.initializer.extend(_dense(each) for each in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                attribute.CopyFrom(helper.make_attribute("value", _dense(attribute.sparse_tensor)))
            for inner in subgraphs(attribute):
                _write_densely(inner)


def _dense(sparse: SparseTensorProto) -> TensorProto:
    values, places = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    found = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        found.reshape(-1)[places] = values
    else:
        found[tuple(places.T)] = values
    return numpy_helper.from_array(found, sparse.values.name)
