"""A model with the versions that the reference can read, where what it holds means the same in them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnx.version_converter
from onnx import TensorProto, helper

from bolt_build.graph.onnx_model.onnx_findings import Findings
from bolt_build.graph.onnx_model.onnx_functions import inlined
from bolt_build.graph.onnx_model.onnx_order import in_order
from bolt_build.graph.onnx_model.onnx_parse import subgraphs
from bolt_build.verify.models.oldest import in_ninth

Reads = Callable[[int, int], bool]
"""Whether the reference loads a model of an IR version and an opset."""

OLDEST_IR, OLDEST_OPSET = 3, 7
_PLAIN_OPSET = 9
"""With this and `OLDEST_IR` a reference is asked for one of them alone."""
_NEWER_TYPES = (
    (9, "FLOAT8E4M3FN"), (9, "FLOAT8E4M3FNUZ"), (9, "FLOAT8E5M2"), (9, "FLOAT8E5M2FNUZ"), (10, "UINT4"), (10, "INT4"),
    (11, "FLOAT4E2M1"), (12, "FLOAT8E8M0"), (13, "UINT2"), (13, "INT2"),
)  # fmt: skip
"""The IR version that brought each element type which was not always there."""


class Unreadable(Exception):
    """The reference cannot read the model, nor one that means the same; the text says why, from the verb on."""


@dataclass(frozen=True)
class Versions:
    """An IR version and the version of ONNX's own operators."""

    ir: int
    opset: int

    def __str__(self) -> str:
        return f"opset {self.opset} and IR {self.ir}"


def versions_of(model: onnx.ModelProto) -> Versions:
    """Those that the model states."""
    own = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    return Versions(int(model.ir_version), int(max(own, default=1)))


def readable(path: Path, model: onnx.ModelProto, reads: Reads) -> onnx.ModelProto:
    """The model at `path`, its functions inlined as import does it, in the newest versions that `reads` allows. Shapes
    that graphs inside nodes state of what they compute are left out: exporters write those of another branch, and
    onnxruntime believes them. Nodes are in order. What TopK takes is sorted: where a model leaves the order open,
    engines sort too. One of the oldest operator sets is one of the ninth. Of nodes that share a name the first has it:
    names of nodes mean nothing, and onnxruntime refuses such.

    Raises Unreadable where it has what those versions do not, and BoltError where functions cannot be inlined.
    """
    model = in_ninth(_named_once(_sorted(_unstated(in_order(inlined(Findings(path), model))))))
    stated = versions_of(model)
    opset = _newest(stated.opset, OLDEST_OPSET, lambda version: reads(OLDEST_IR, version))
    if opset != stated.opset:
        model = _with_opset(model, stated.opset, opset)
    needed = _least_ir(model)
    # Tools that write a newer element type into a model leave its IR version what it was.
    ir = _newest(max(stated.ir, needed), OLDEST_IR, lambda version: reads(version, _PLAIN_OPSET))
    if ir < needed:
        raise Unreadable(f"reads IR {ir}, and the model has what came with IR {needed}")
    if ir != stated.ir:
        lowered = onnx.ModelProto()
        lowered.CopyFrom(model)
        lowered.ir_version = ir
        return lowered
    return model


def _unstated(model: onnx.ModelProto) -> onnx.ModelProto:
    if not any(list(subgraphs(attribute)) for node in model.graph.node for attribute in node.attribute):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in _nodes(changed.graph.node):
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                del graph.value_info[:]
                for output in graph.output:
                    if output.type.HasField("tensor_type"):
                        output.type.tensor_type.ClearField("shape")
    return changed


def _sorted(model: onnx.ModelProto) -> onnx.ModelProto:
    if not any(_leaves_order(node) for node in _nodes(model.graph.node)):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in _nodes(changed.graph.node):
        if _leaves_order(node):
            for attribute in node.attribute:
                if attribute.name == "sorted":
                    attribute.i = 1
    return changed


def _named_once(model: onnx.ModelProto) -> onnx.ModelProto:
    named = Counter(node.name for node in model.graph.node if node.name)
    if all(count == 1 for count in named.values()):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    seen = set[str]()
    for node in changed.graph.node:
        if node.name in seen:
            node.name = ""
        seen.add(node.name)
    return changed


def _leaves_order(node: onnx.NodeProto) -> bool:
    return node.op_type == "TopK" and any(each.name == "sorted" and each.i == 0 for each in node.attribute)


def reads_of(runtime: Any) -> Reads:
    """Asks onnxruntime with models of one node."""

    @functools.cache
    def reads(ir: int, opset: int) -> bool:
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", ports[:1], ports[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        try:
            runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # onnxruntime's exceptions share no base class
            return False
        return True

    return reads


def _newest(stated: int, oldest: int, reads: Callable[[int], bool]) -> int:
    """`stated`, or the newest version below that can be read; `stated` where none can: the reference then says so."""
    return next((version for version in range(stated, oldest - 1, -1) if reads(version)), stated)


def _with_opset(model: onnx.ModelProto, stated: int, wanted: int) -> onnx.ModelProto:
    """The model in an older opset: restated where no operator of it changed in between, else converted.

    Raises Unreadable where ONNX cannot convert it.
    """
    changed = sorted({node.op_type for node in _nodes(model.graph.node) if _since(node, stated) > wanted})
    if not changed:
        restated = onnx.ModelProto()
        restated.CopyFrom(model)
        for opset in restated.opset_import:
            if opset.domain in ("", "ai.onnx"):
                opset.version = wanted
        return restated
    try:
        return onnx.version_converter.convert_version(model, wanted)
    except Exception as error:  # C++ that raises whatever its adapters do
        text = " ".join(str(error).split())
        raise Unreadable(
            f"reads opset {wanted}, and operators of the model are newer ({', '.join(changed)}); they cannot be "
            f"converted: {text}"
        ) from error


def _since(node: onnx.NodeProto, opset: int) -> int:
    """The opset that last changed the node's operator, 0 for one that is not ONNX's own."""
    if node.domain not in ("", "ai.onnx"):
        return 0
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from _nodes(graph.node)


def _least_ir(model: onnx.ModelProto) -> int:
    """The IR version that brought the newest element type of the model; what IR versions add beside is for tools."""
    graph = model.graph
    used = {tensor.data_type for tensor in graph.initializer}
    used |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    used |= {attribute.t.data_type for node in _nodes(graph.node) for attribute in node.attribute}
    since = {getattr(TensorProto, name): ir for ir, name in _NEWER_TYPES if hasattr(TensorProto, name)}
    # A type that this list does not know came with the version that the model states.
    newest = max((*since, TensorProto.BFLOAT16))
    return max((since.get(kind, OLDEST_IR if kind <= newest else int(model.ir_version)) for kind in used), default=0)
