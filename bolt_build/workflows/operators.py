"""Which ONNX operators this installation imports: from the importers, and from asking the kernel families."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.defs

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families import load
from bolt_build.graph.arrays import numpy_dtype, type_of
from bolt_build.graph.example import Bytes, Data, Integers, Listed, Weights
from bolt_build.graph.importing import Attribute, Importer, OnnxNode
from bolt_build.graph.ir import Array, Constant, Graph, Node, Value
from bolt_build.graph.onnx_import import OnnxModel, importer_table
from bolt_build.graph.onnx_model.binding import INPUT_DTYPES
from bolt_build.graph.onnx_model.onnx_bodies import is_function
from bolt_build.graph.onnx_model.onnx_file import OnnxInput
from bolt_build.graph.onnx_model.onnx_parse import OLDEST_OPSET
from bolt_build.targets import Target
from bolt_build.wording import nearest

_WORDS = {dtype: word for word, dtype in INPUT_DTYPES.items()} | {
    dtype: word for word, dtype in [*PRECISIONS.items(), ("fp64", DType.F64)]
}


@dataclass(frozen=True)
class Range:
    """Operator sets from `first` to `last`, the newest that the installed onnx knows where that is None."""

    first: int
    last: int | None


@dataclass(frozen=True)
class OperatorSupport:
    """What is known of one operator.

    `types` are the element types of models whose data it takes; none where it takes constants alone. `kernels` are, by
    kind of target ("cpu", "cuda"), the families with kernels for what it becomes; none where it only says how bytes are
    read, or where its result is `known` whatever the data.
    """

    name: str
    opsets: tuple[Range, ...]
    types: tuple[str, ...]
    kernels: tuple[tuple[str, tuple[str, ...]], ...]
    known: bool
    note: str


def operators(targets: Sequence[Target], names: Sequence[str] = ()) -> tuple[OperatorSupport, ...]:
    """Every operator that some importer understands, by name, or those of `names`. Of targets of one kind the last one
    is asked. Raises BoltError where an installed package's offer cannot be used, and for names that no operator has."""
    by_name: dict[str, list[Importer]] = {}
    for importer in importer_table().importers():
        by_name.setdefault(_name(importer), []).append(importer)
    one_a_place = tuple({target.where: target for target in targets}.values())
    chosen = named(sorted(by_name, key=str.lower), names)
    return tuple(_support(name, by_name[name], one_a_place) for name in chosen)


def named(known: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names, with or without their domains, in any case; all where there are none. Raises BoltError with
    every name that none has."""
    if not names:
        return tuple(known)
    spelt = {form: each for each in known for form in sorted(_called(each))}
    unknown = [name for name in dict.fromkeys(names) if name.lower() not in spelt]
    if unknown:
        raise BoltError([_unknown(name, spelt) for name in unknown], ExitCode.USAGE)
    asked = {name.lower() for name in names}
    return tuple(each for each in known if asked & _called(each))


def _called(name: str) -> set[str]:
    """What people may call an operator, in small letters."""
    whole = name.lower()
    return {whole, whole.rpartition(".")[2]}


def _unknown(name: str, spelt: Mapping[str, str]) -> Diagnostic:
    own = {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas()}.get(name.lower())
    if own is None:
        close = nearest(name, spelt)
        hint = None if close is None else f"did you mean '{spelt[close]}'?"
        return Diagnostic("unknown-operator", f"there is no operator '{name}'", hint=hint)
    if is_function(own, onnx.defs.onnx_opset_version()):
        message = f"the operator '{own}' has no importer: it is imported as the operators that ONNX defines it by"
        return Diagnostic("no-importer", message, hint="ask for these")
    hint = "'bolt-build check --model' says of a model what to do about it"
    return Diagnostic("unsupported-op", f"the operator '{own}' cannot be imported", hint=hint)


def example_graph(importer: Importer, dtype: DType) -> Graph:
    """The importer's example with data of `dtype`. Raises BoltError where it does not take that."""
    inputs, constants, names = [], [], []
    for index, given in enumerate(importer.example.inputs):
        name = f"x{index}"
        names.append(name)
        if isinstance(given, Data):
            onnx_type = next(word for word, known in INPUT_DTYPES.items() if known is (given.dtype or dtype))
            inputs.append(OnnxInput(name, onnx_type, given.shape))
        else:
            array = _constant(given, dtype)
            constants.append(Value(name, type_of(array), Constant(array)))
    outputs = tuple(f"y{index}" for index in range(importer.example.outputs))
    listed, joined = importer.example.listed, importer.example.joined
    nodes = []
    if listed:
        nodes.append(OnnxNode("list", "", "SequenceConstruct", 11, tuple(names[:listed]), ("list",)))
        names = ["list", *names[listed:]]
    made = ("joined",) if joined else outputs
    nodes.append(
        OnnxNode(
            importer.op_type, importer.domain, importer.op_type, max(importer.versions), tuple(names), made,
            tuple((name, _attribute(value)) for name, value in importer.example.attributes),
        )
    )  # fmt: skip
    if joined:
        nodes.append(OnnxNode("joined", "", "ConcatFromSequence", 11, made, outputs, (("axis", 0),)))
    model = OnnxModel(
        Path("example"), (), max(importer.versions), tuple(inputs), outputs, tuple(constants), tuple(nodes)
    )
    return model.bind(model.batches(())[0])


def _attribute(given: Attribute | Listed) -> Attribute:
    return np.asarray(given.values, numpy_dtype(given.dtype)) if isinstance(given, Listed) else given


def _support(name: str, importers: Sequence[Importer], targets: Sequence[Target]) -> OperatorSupport:
    """`importers`: those of one operator, the newest first. What they take and become is that of the newest."""
    newest = importers[0]
    versions = [version for importer in importers for version in importer.versions]
    families: dict[str, list[str]] = {target.where: [] for target in targets}
    types, known = [], False
    for dtype in INPUT_DTYPES.values() if _takes_data(newest) else ():
        try:
            graph = example_graph(newest, dtype)
        except BoltError:
            continue
        found = {target.where: _families(graph, target) for target in targets}
        known = known or all(_is_constant(graph, node) for node in graph.nodes)
        if all(each is not None for each in found.values()):
            types.append(_WORDS[dtype])
            for where, each in found.items():
                families[where] += [family for family in each or () if family not in families[where]]
    kernels = tuple((where, tuple(each)) for where, each in families.items())
    notes = dict.fromkeys(importer.note for importer in importers if importer.note)
    return OperatorSupport(name, opset_ranges(newest, versions), tuple(types), kernels, known, "; ".join(notes))


def _takes_data(importer: Importer) -> bool:
    return not importer.folds and any(isinstance(given, Data) for given in importer.example.inputs)


def _families(graph: Graph, target: Target) -> tuple[str, ...] | None:
    """The families that have kernels of `target` for the graph's nodes; None where a node has none."""
    precision = PRECISIONS[target.precisions[0]]
    found: list[str] = []
    for node in graph.nodes:
        if _is_constant(graph, node):
            continue
        offered = {family.name: family.propose(graph, node, target, precision)[0] for family in load(target)}
        kernels = [name for name, alternatives in offered.items() if alternatives]
        if not kernels:
            return None
        # What is a view is no kernel's work.
        found += [name for name in kernels if any(not step.view for each in offered[name] for step in each.steps)]
    return tuple(dict.fromkeys(found))


def _is_constant(graph: Graph, node: Node) -> bool:
    """Whether the node only hands a constant out."""
    return all(graph.constant(name) is not None for name in node.inputs)


def _constant(given: Weights | Bytes | Integers, dtype: DType) -> Array:
    if isinstance(given, Bytes):
        return np.ones(given.shape, np.uint8)
    if isinstance(given, Integers):
        return np.asarray(given.values[0] if given.scalar else given.values, np.int64)
    return np.ones(given.shape, numpy_dtype(dtype))


def _name(importer: Importer) -> str:
    return f"{importer.domain}.{importer.op_type}" if importer.domain else importer.op_type


@functools.cache
def _histories() -> dict[tuple[str, str], list[int]]:
    """The versions of every operator that the installed onnx knows, by domain and name, oldest first."""
    found: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {key: sorted(versions) for key, versions in found.items()}


def opset_ranges(importer: Importer, versions: Iterable[int]) -> tuple[Range, ...]:
    """The operator sets in which the operator has one of `versions`, neighbours joined.

    A domain that the installed onnx does not know has no history: any newer version is taken for the newest."""
    history = _histories().get((importer.domain, importer.op_type), [])
    chosen, oldest = set(versions), OLDEST_OPSET if not importer.domain else 1
    if not history:
        return (Range(min(chosen), None),)
    found: list[Range] = []
    for version, following in zip(history, [*history[1:], None], strict=True):
        last = None if following is None else following - 1
        if version not in chosen or (last is not None and last < oldest):
            continue
        if found and found[-1].last == version - 1:
            found[-1] = Range(found[-1].first, last)
        else:
            found.append(Range(max(version, oldest), last))
    return tuple(found)
