"""ONNX files as plain data: everything about protobuf, external data and operator schemas ends here.

Import this module only where a model is really read: it imports onnx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
import onnx.defs
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, numpy_helper

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.importing import Attribute, OnnxNode
from bolt_build.graph.ir import Array

OLDEST_OPSET = 9
LARGEST_FILE = 2**31 - 1
_MAGIC = (
    (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"PK\x03\x04", "a ZIP archive or a checkpoint"),
    (b"\x1f\x8b", "a gzip archive"), (b"\x89HDF", "an HDF5 file"), (b"version https://git-lfs", "a Git LFS pointer"),
    (b"<", "markup text"), (b"ir_version", "ONNX in text form"), (b"{", "JSON text"),
)  # fmt: skip


@dataclass(frozen=True)
class OnnxInput:
    """A graph input; a dimension is an extent, the name of a symbolic one, or None for one without a name.

    `dtype` is TensorProto's name of the element type; `dims` is None where the rank is not known.
    """

    name: str
    dtype: str
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class OnnxContents:
    """A model file's graph. `nodes` are those that outputs depend on, in order; `files` all that was read."""

    path: Path
    files: tuple[Path, ...]
    opsets: tuple[tuple[str, int], ...]
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    initializers: tuple[tuple[str, Array], ...]
    nodes: tuple[OnnxNode, ...]


@dataclass
class _Reader:
    """Diagnostics about one file, and the files read for it."""

    path: Path
    diagnostics: list[Diagnostic] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def report(self, code: str, message: str, hint: str | None = None) -> None:
        self.diagnostics.append(Diagnostic(code, message, hint=hint, subject=str(self.path)))

    def fail(self, code: str, message: str, hint: str | None = None) -> BoltError:
        self.report(code, message, hint)
        return BoltError(self.diagnostics)


def read_onnx(path: Path) -> OnnxContents:
    """The contents of the model at `path`, local functions inlined. Raises BoltError with every finding."""
    reader = _Reader(path, files=[path])
    model = _parse(reader)
    opsets = _opsets(reader, model)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # the inliner is C++ and raises whatever its checker does
            raise reader.fail("invalid-model", f"the model's functions cannot be inlined: {error}") from error
    graph = model.graph
    if not graph.output:
        raise reader.fail("model-without-outputs", "the model's graph has no outputs")
    _check_definitions(reader, graph)
    live = _live_nodes(graph)
    needed = {name for _, proto in live for name in proto.input} | {output.name for output in graph.output}
    initializers = tuple(
        (tensor.name, array)
        for tensor in graph.initializer
        if tensor.name in needed and (array := _tensor(reader, tensor)) is not None
    )
    given = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = tuple(_input(value) for value in graph.input if value.name not in given)
    nodes = _nodes(reader, live, dict(opsets))
    if reader.diagnostics:
        raise BoltError(reader.diagnostics)
    outputs = tuple(dict.fromkeys(output.name for output in graph.output))
    return OnnxContents(path, tuple(dict.fromkeys(reader.files)), opsets, inputs, outputs, initializers, nodes)


def _parse(reader: _Reader) -> onnx.ModelProto:
    path = reader.path
    if path.is_dir():
        raise reader.fail("model-is-a-directory", f"'{path}' is a directory, not an ONNX file")
    try:
        if path.stat().st_size > LARGEST_FILE:
            hint = "save it with its tensors as external data: onnx.save(model, path, save_as_external_data=True)"
            raise reader.fail("model-too-large", f"the model '{path}' is larger than a protobuf can be (2 GiB)", hint)
        data = path.read_bytes()
    except FileNotFoundError:
        raise reader.fail("model-not-found", f"the model '{path}' does not exist") from None
    except OSError as error:
        raise reader.fail("model-unreadable", f"the model '{path}' cannot be read: {error.strerror}") from None
    if not data:
        raise reader.fail("model-empty", f"the model '{path}' is empty")
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise reader.fail("not-onnx", f"'{path}' is not an ONNX file but {what}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError):
        hint = "it may be truncated; export or download it again"
        raise reader.fail("not-onnx", f"'{path}' cannot be parsed as an ONNX file", hint) from None
    if not model.HasField("graph"):
        raise reader.fail("model-without-graph", f"'{path}' has no graph: it is no ONNX model, or truncated")
    if any(not isinstance(text, str) for text in _texts(model)):
        raise reader.fail("not-onnx", f"'{path}' has names that are not UTF-8 text: it is damaged")
    return model


def _texts(model: onnx.ModelProto) -> Iterable[object]:
    """Every name that is read from the model; protobuf gives bytes for one that is not UTF-8."""
    graph = model.graph
    for opset in model.opset_import:
        yield opset.domain
    for value in (*graph.input, *graph.output):
        yield value.name
        for dim in value.type.tensor_type.shape.dim:
            yield dim.dim_param
    for tensor in graph.initializer:
        yield tensor.name
        for entry in tensor.external_data:
            yield entry.key
            yield entry.value
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name


def _opsets(reader: _Reader, model: onnx.ModelProto) -> tuple[tuple[str, int], ...]:
    """Version by domain ("" for ONNX's own), checked."""
    found = {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    version = found.get("")
    if version is None:
        raise reader.fail("invalid-model", "the model does not say which ONNX opset it uses")
    if version < OLDEST_OPSET:
        hint = f"convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET}) or newer"
        message = f"opset {version} is older than the oldest supported, {OLDEST_OPSET}"
        raise reader.fail("unsupported-opset", message, hint)
    if version > newest:
        hint = "install a newer onnx package"
        message = f"opset {version} is newer than the newest that the installed onnx {onnx.__version__} knows, {newest}"
        raise reader.fail("unsupported-opset", message, hint)
    return tuple(found.items())


def _check_definitions(reader: _Reader, graph: onnx.GraphProto) -> None:
    """Reports names defined twice, and tensors used before or without being defined."""
    for sparse in graph.sparse_initializer:
        message = f"the initializer '{sparse.values.name}' is sparse, which is not supported"
        reader.report("unsupported-initializer", message)
    for name, count in Counter(tensor.name for tensor in graph.initializer).items():
        if count > 1:
            reader.report("duplicate-tensor", f"the initializer '{name}' is given {count} times")
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    defined |= {sparse.values.name for sparse in graph.sparse_initializer}
    produced = {name for node in graph.node for name in node.output if name}
    missed: set[str] = set()
    for node in graph.node:
        label = f"{node.op_type} '{node.name}'" if node.name else node.op_type
        for name in node.input:
            if name and name not in defined and name not in missed:
                why = "before it is computed" if name in produced else "which nothing defines"
                reader.report("undefined-tensor", f"{label} reads '{name}', {why}")
                missed.add(name)
        for name in node.output:
            if name and name in defined:
                reader.report("duplicate-tensor", f"{label} defines '{name}', which is defined already")
            defined.add(name)
    for output in graph.output:
        if output.name not in defined and output.name not in missed:
            reader.report("undefined-tensor", f"the graph's output '{output.name}' is not defined by anything")


def _live_nodes(graph: onnx.GraphProto) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes that some output depends on, each with its place in the file."""
    needed = {output.name for output in graph.output}
    found: list[tuple[int, onnx.NodeProto]] = []
    for index in range(len(graph.node) - 1, -1, -1):
        node = graph.node[index]
        if needed.isdisjoint(node.output):
            continue
        needed.update(name for name in node.input if name)
        for attribute in node.attribute:
            needed.update(_captured(attribute))
        found.append((index, node))
    return found[::-1]


def _captured(attribute: AttributeProto) -> Iterable[str]:
    """Names that the subgraphs of an attribute may read from outside."""
    for graph in (attribute.g, *attribute.graphs):
        for node in graph.node:
            yield from node.input


def _nodes(reader: _Reader, live: list[tuple[int, onnx.NodeProto]], opsets: dict[str, int]) -> tuple[OnnxNode, ...]:
    taken = {node.name for _, node in live if node.name}
    used: set[str] = set()
    found = []
    for index, proto in live:
        base = proto.name or f"{proto.op_type}_{index}"
        name, count = base, 1
        while name in used or (name in taken and name != proto.name):
            count += 1
            name = f"{base}#{count}"
        used.add(name)
        found.append(_node(reader, proto, name, opsets))
    return tuple(found)


def _node(reader: _Reader, proto: onnx.NodeProto, name: str, opsets: dict[str, int]) -> OnnxNode:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    attributes: list[tuple[str, Attribute]] = []
    unreadable = []
    for attribute in proto.attribute:
        value = _attribute(reader, attribute)
        if value is None:
            unreadable.append(attribute.name)
        else:
            attributes.append((attribute.name, value))
    version = _since_version(domain, proto.op_type, opsets.get(domain, 0))
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    return OnnxNode(name, domain, proto.op_type, version, inputs, outputs, tuple(attributes), tuple(unreadable))


def _since_version(domain: str, op_type: str, opset: int) -> int:
    """The version of the operator's schema; for a domain without schemas the opset itself, 0 where none is imported."""
    try:
        return int(onnx.defs.get_schema(op_type, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return opset if domain else 0


def _attribute(reader: _Reader, attribute: AttributeProto) -> Attribute | None:
    """The decoded value, None for a kind that has no decoded form."""
    kind = attribute.type
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind == AttributeProto.TENSOR:
        return _tensor(reader, attribute.t)
    if kind == AttributeProto.FLOATS:
        return tuple(float(item) for item in attribute.floats)
    if kind == AttributeProto.INTS:
        return tuple(int(item) for item in attribute.ints)
    if kind == AttributeProto.STRINGS:
        return tuple(item.decode(errors="replace") for item in attribute.strings)
    return None


def _input(value: onnx.ValueInfoProto) -> OnnxInput:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return OnnxInput(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    known = tensor.elem_type in TensorProto.DataType.values()
    dtype = TensorProto.DataType.Name(tensor.elem_type).lower() if known else str(tensor.elem_type)
    if not tensor.HasField("shape"):
        return OnnxInput(value.name, dtype, None)
    dims = tuple(d.dim_value if d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim)
    return OnnxInput(value.name, dtype, dims)


def _tensor(reader: _Reader, tensor: TensorProto) -> Array | None:
    """The array of a tensor, read from beside the model where it is external. Reports what is wrong with it."""
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            return _external(reader, tensor)
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError) as error:
        reader.report("broken-tensor", f"the tensor '{tensor.name}' cannot be read: {error}")
    return None


def _external(reader: _Reader, tensor: TensorProto) -> Array | None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    inside = PurePosixPath(location.replace("\\", "/"))
    if not location or inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
        message = f"the data of '{tensor.name}' lies at '{location}', outside the model's directory"
        reader.report("external-data", message)
        return None
    file = reader.path.parent / inside
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    shape = tuple(int(extent) for extent in tensor.dims)
    offset = int(entries.get("offset", 0))
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if offset < 0 or int(entries.get("length", nbytes)) != nbytes:
        reader.report("external-data", f"the data of '{tensor.name}' in '{file}' does not have its {nbytes} bytes")
        return None
    if not file.is_file():
        hint = "keep the data file beside the model"
        reader.report("external-data", f"the data of '{tensor.name}' is missing: there is no file '{file}'", hint)
        return None
    reader.files.append(file)
    with file.open("rb") as handle:
        handle.seek(offset)
        data = handle.read(nbytes)
    if len(data) != nbytes:
        reader.report("external-data", f"the data of '{tensor.name}' is cut off: '{file}' is too short")
        return None
    return np.frombuffer(data, dtype).reshape(shape)
