"""Local functions of a model, inlined once it is known what that makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
import onnx.defs
import onnx.inliner

from bolt_build.graph.limits import MOST_CALL_DEPTH, MOST_FILE_NODES, MOST_INLINED_BYTES
from bolt_build.graph.onnx_model.onnx_findings import Findings, listed
from bolt_build.graph.onnx_model.onnx_parse import check_text, subgraphs

_Key = tuple[str, str, str]


@dataclass(frozen=True)
class _Body:
    """The nodes of a graph or function without calls, their bytes, and the functions called, each as often as it is."""

    nodes: int
    nbytes: int
    calls: tuple[tuple[_Key, int], ...]


@dataclass(frozen=True)
class _Size:
    """What a body becomes once all calls are inlined; `depth` counts the functions inside each other."""

    nodes: int
    nbytes: int
    depth: int


def inlined(findings: Findings, model: onnx.ModelProto, kept: Collection[tuple[str, str]] = ()) -> onnx.ModelProto:
    """The model without local functions, but for calls of those `kept` by domain and name. Raises BoltError where they
    cannot be inlined, or not within the limits."""
    if not model.functions:
        return model
    for (domain, name, _), count in Counter(_key_of(function) for function in model.functions).items():
        if count > 1:
            findings.report("invalid-model", f"the function '{name}' of domain '{domain}' is given {count} times")
    for function in model.functions:
        _check_opset(findings, function)
    findings.check()
    _check_size(findings, model)
    model = _with_own_opset(_with_defaults(model))
    try:
        if kept or not _other_opsets(model):
            model = onnx.inliner.inline_selected_functions(model, list(kept), exclude=True)
        else:
            model = onnx.inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # the inliner is C++ and raises whatever its checker does
        raise findings.fail("invalid-model", f"the model's functions cannot be inlined: {error}") from error
    check_text(findings, model)
    return model


def _check_opset(findings: Findings, function: onnx.FunctionProto) -> None:
    opset, newest = _own_opset(function.opset_import), onnx.defs.onnx_opset_version()
    if opset is not None and not 0 < opset <= newest:
        message = (
            f"the function '{function.name}' is written in opset {opset}; onnx {onnx.__version__} knows 1 to {newest}"
        )
        findings.report("unsupported-opset", message, "install a newer onnx package" if opset > newest else None)


def _with_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model whose calls say every attribute that their function has a value for: the inliner knows no other."""
    defaults = {_key_of(function): function.attribute_proto for function in model.functions if function.attribute_proto}
    if not defaults:
        return model
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    for body in (filled.graph.node, *(function.node for function in filled.functions)):
        for node in _all_nodes(body):
            given = {attribute.name for attribute in node.attribute}
            key = (_own(node.domain), node.op_type, node.overload)
            node.attribute.extend(each for each in defaults.get(key, ()) if each.name not in given)
    return filled


def _own_opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """The version of ONNX's own domain."""
    return next((each.version for each in imports if not _own(each.domain)), None)


def _other_opsets(model: onnx.ModelProto) -> bool:
    """Whether a function is written for another opset of ONNX's own domain than the model is."""
    own = _own_opset(model.opset_import)
    return any(_own_opset(function.opset_import) not in (None, own) for function in model.functions)


def _with_own_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model whose functions are said to be of its own opset, where each operator in them has the same form there:
    the inliner takes no other, and converts only what it knows the types of."""
    own = _own_opset(model.opset_import)
    if own is None or not _other_opsets(model):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for function in changed.functions:
        of = _own_opset(function.opset_import)
        names = {node.op_type for node in _all_nodes(function.node) if not _own(node.domain)}
        if of not in (None, own) and all(_form(name, of or own) == _form(name, own) for name in names):
            for each in function.opset_import:
                if not _own(each.domain):
                    each.version = own
    return changed


def _form(name: str, opset: int) -> object:
    """What an operator of ONNX takes and gives in an opset, element types aside."""
    try:
        schema = onnx.defs.get_schema(name, opset, "")
    except onnx.defs.SchemaError:
        return None
    attributes = {each.name: (each.type, each.required, str(each.default_value)) for each in schema.attributes.values()}
    ports = [[(each.name, each.option) for each in side] for side in (schema.inputs, schema.outputs)]
    return attributes, ports


def _check_size(findings: Findings, model: onnx.ModelProto) -> None:
    """Raises BoltError where functions call themselves, or what the calls become is beyond a limit."""
    keys = {_key_of(function) for function in model.functions}
    bodies = {_key_of(function): _body(function.node, keys) for function in model.functions}
    sizes: dict[_Key, _Size] = {}
    for key in _callees_first(findings, bodies):
        sizes[key] = _size(bodies[key], sizes)
    size = _size(_body(model.graph.node, keys), sizes)
    if size.depth > MOST_CALL_DEPTH:
        message = f"the model's functions call each other {size.depth} deep; supported are {MOST_CALL_DEPTH}"
        raise findings.fail("model-too-large", message, "export the model with fewer functions inside each other")
    if size.nodes > MOST_FILE_NODES:
        message = f"the model has {size.nodes} nodes once its functions are inlined; supported are {MOST_FILE_NODES}"
        raise findings.fail("model-too-large", message)
    if size.nbytes > MOST_INLINED_BYTES:
        message = (
            f"the model has {size.nbytes} bytes once its functions are inlined; supported are {MOST_INLINED_BYTES}"
        )
        raise findings.fail("model-too-large", message, "give constants to functions as inputs")


def _callees_first(findings: Findings, bodies: Mapping[_Key, _Body]) -> Iterator[_Key]:
    """Every function behind those that it calls. Raises BoltError where that cannot be: one calls itself."""
    waits = {key: len(body.calls) for key, body in bodies.items()}
    callers: dict[_Key, list[_Key]] = {}
    for key, body in bodies.items():
        for callee, _ in body.calls:
            callers.setdefault(callee, []).append(key)
    ready = [key for key, count in waits.items() if not count]
    while ready:
        key = ready.pop()
        del waits[key]
        yield key
        for caller in callers.get(key, ()):
            waits[caller] -= 1
            if not waits[caller]:
                ready.append(caller)
    if waits:
        names = listed([name for _, name, _ in waits])
        raise findings.fail(
            "invalid-model", f"functions of the model call themselves, or each other in a circle: {names}"
        )


def _body(nodes: Iterable[onnx.NodeProto], functions: set[_Key]) -> _Body:
    count = nbytes = 0
    calls: Counter[_Key] = Counter()
    for node in _all_nodes(nodes):
        key = (_own(node.domain), node.op_type, node.overload)
        if key in functions:
            calls[key] += 1
        else:
            count += 1
            nbytes += node.ByteSize()
    return _Body(count, nbytes, tuple(calls.items()))


def _size(body: _Body, sizes: Mapping[_Key, _Size]) -> _Size:
    found = [(sizes[key], times) for key, times in body.calls]
    return _Size(
        body.nodes + sum(size.nodes * times for size, times in found),
        body.nbytes + sum(size.nbytes * times for size, times in found),
        max((size.depth + 1 for size, _ in found), default=0),
    )


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of the graphs inside them. Protobuf bounds how deep messages nest."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from _all_nodes(graph.node)


def _key_of(function: onnx.FunctionProto) -> _Key:
    return (_own(function.domain), function.name, function.overload)


def _own(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
