"""A model of operator sets 7 and 8 in the ninth: verification adds operators that came with it, such as
ConstantOfShape."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper, numpy_helper

NINTH = 9
_OF_ITS_OWN = 4
"""From this IR version on an initializer need not be an input, or be read."""
_NOT_THERE = ("Scan", "If", "Loop")
"""What may hold nodes that changed, or did so itself."""


def in_ninth(model: ModelProto) -> ModelProto:
    """The model restated, the factors of each Upsample a constant; itself where it has a graph inside a node. What else
    changed until then takes more than before; BatchNormalization is written out where it does not (`batch_norms`)."""
    stated = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=NINTH)
    if stated >= NINTH or any(node.op_type in _NOT_THERE for node in model.graph.node):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    changed.ir_version = max(_OF_ITS_OWN, changed.ir_version)
    for each in changed.opset_import:
        if each.domain in ("", "ai.onnx"):
            each.version = NINTH
    for node in changed.graph.node:
        if node.op_type != "Upsample" or node.domain not in ("", "ai.onnx"):
            continue
        given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        kept = [each for each in node.attribute if each.name != "scales"]
        factors = numpy_helper.from_array(np.asarray(given["scales"], np.float32), f"{node.output[0]}/scales")
        changed.graph.initializer.append(factors)
        node.input.append(factors.name)
        del node.attribute[:]
        node.attribute.extend(kept)
    return changed
