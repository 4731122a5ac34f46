"""From the bytes of an ONNX file to a protobuf whose names are text, and the opsets that it uses."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.defs
from google.protobuf.message import DecodeError

from bolt_build.graph.onnx_model.onnx_findings import Findings
from bolt_build.user_files import (
    CHECKPOINT,
    LFS_POINTER,
    LFS_PULL,
    ONNX_TEXT,
    PICKLE,
    SAFETENSORS,
    known_kind,
    read_regular,
)

OLDEST_OPSET = 7
LARGEST_FILE = 2**31 - 1
_LARGEST_VERSION = 2**31 - 1
_EXPORT = "export the model: torch.onnx.export, or 'bolt-build init MODULE:FUNCTION'"
_MENDS = {
    LFS_POINTER: LFS_PULL,
    CHECKPOINT: _EXPORT,
    PICKLE: _EXPORT,
    SAFETENSORS: _EXPORT,
    ONNX_TEXT: "save it in binary form: onnx.save(onnx.load(path, 'textproto'), path)",
}
"""What to do about a file of another kind, where that is known."""


def parse_model(findings: Findings) -> onnx.ModelProto:
    """The model in the file. Raises BoltError where it is none."""
    path = findings.path
    data = _contents(findings)
    if not data:
        raise findings.fail("model-empty", f"the model '{path}' is empty", "export or download it again")
    kind = known_kind(data)
    if kind is not None:
        raise findings.fail("not-onnx", f"'{path}' is not an ONNX file but {kind}", _MENDS.get(kind))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError):
        hint = "it may be truncated; export or download it again"
        raise findings.fail("not-onnx", f"'{path}' cannot be parsed as an ONNX file", hint) from None
    if not model.HasField("graph"):
        raise findings.fail("model-without-graph", f"'{path}' has no graph: it is no ONNX model, or truncated")
    check_text(findings, model)
    return model


def _contents(findings: Findings) -> bytes:
    path = findings.path
    if path.is_dir():
        raise findings.fail("model-is-a-directory", f"'{path}' is a directory, not an ONNX file")
    try:
        if path.stat().st_size > LARGEST_FILE:
            hint = "save it with its tensors as external data: onnx.save(model, path, save_as_external_data=True)"
            raise findings.fail("model-too-large", f"the model '{path}' is larger than a protobuf can be (2 GiB)", hint)
        return read_regular(path, LARGEST_FILE)
    except FileNotFoundError:
        raise findings.fail("model-not-found", f"the model '{path}' does not exist") from None
    except OSError as error:
        raise findings.fail("model-unreadable", f"the model '{path}' cannot be read: {error.strerror}") from None


def check_text(findings: Findings, model: onnx.ModelProto) -> None:
    """Raises BoltError where a name that is read from the model is no text."""
    if any(not isinstance(text, str) for text in _texts(model)):
        raise findings.fail("not-onnx", f"'{findings.path}' has names that are not UTF-8 text: it is damaged")


def _texts(model: onnx.ModelProto) -> Iterator[object]:
    """Every name that is read from the model; protobuf gives bytes for one that is not UTF-8."""
    for opset in model.opset_import:
        yield opset.domain
    for function in model.functions:
        yield from (function.domain, function.name, function.overload, *function.input, *function.output)
        for node in function.node:
            yield from _node_texts(node)
    graph = model.graph
    for value in (*graph.input, *graph.output):
        yield value.name
        for dim in value.type.tensor_type.shape.dim:
            yield dim.dim_param
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        yield from _tensor_texts(tensor)
    for node in graph.node:
        yield from _node_texts(node)


def _node_texts(node: onnx.NodeProto) -> Iterator[object]:
    yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
    for attribute in node.attribute:
        yield attribute.name
        if attribute.HasField("t"):
            yield from _tensor_texts(attribute.t)
        for graph in subgraphs(attribute):
            for inner in graph.node:
                yield from _node_texts(inner)


def _tensor_texts(tensor: onnx.TensorProto) -> Iterator[object]:
    yield tensor.name
    for entry in tensor.external_data:
        yield entry.key
        yield entry.value


def subgraphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _uses_own(graph: onnx.GraphProto) -> bool:
    """Whether a node, or one of the graphs inside nodes, is of ONNX's own domain."""
    return any(
        node.domain in ("", "ai.onnx")
        or any(_uses_own(inner) for attribute in node.attribute for inner in subgraphs(attribute))
        for node in graph.node
    )


def opsets_of(findings: Findings, model: onnx.ModelProto) -> tuple[tuple[str, int], ...]:
    """Version by domain ("" for ONNX's own), checked. Raises BoltError."""
    found: dict[str, int] = {}
    for opset in model.opset_import:
        domain, version = "" if opset.domain == "ai.onnx" else opset.domain, int(opset.version)
        label = f"domain '{domain}'" if domain else "ONNX's own domain"
        if found.get(domain, version) != version:
            findings.report("invalid-model", f"the model imports {label} twice: opset {found[domain]} and {version}")
        elif domain and not 0 <= version <= _LARGEST_VERSION:
            findings.report("invalid-model", f"the model imports {label} in opset {version}, which cannot be")
        found.setdefault(domain, version)
    newest = onnx.defs.onnx_opset_version()
    own = found.get("")
    if own is None:
        if not found or _uses_own(model.graph):
            raise findings.fail("invalid-model", "the model does not say which ONNX opset it uses")
        found[""] = own = newest  # as runtimes take it: no node is of it
    if own < OLDEST_OPSET:
        hint = f"convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET}) or newer"
        message = f"opset {own} is older than the oldest supported, {OLDEST_OPSET}"
        raise findings.fail("unsupported-opset", message, hint)
    if own > newest:
        hint = "install a newer onnx package"
        message = f"opset {own} is newer than the newest that the installed onnx {onnx.__version__} knows, {newest}"
        raise findings.fail("unsupported-opset", message, hint)
    findings.check()
    return tuple(found.items())
