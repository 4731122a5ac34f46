"""Operators that a model has and nothing imports, each with all of its nodes and what helps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from bolt_build.errors import Diagnostic
from bolt_build.graph.importing import NO_SCHEMA, OnnxNode
from bolt_build.graph.nodes.control_flow import CONTROL_FLOW
from bolt_build.graph.nodes.importer_table import ImporterTable
from bolt_build.graph.onnx_model.onnx_findings import listed

_CONVERT = "convert the model to an opset with a known version: onnx.version_converter.convert_version"
_NEWER = "export the model with that opset, or a newer one"
_REPLACE = "export the model without it, or offer an importer for it (entry points of bolt_build.ops)"
_AT_MOST_EXTENDED = "onnxruntime wrote it for one kind of CPU: let it optimise at most to ORT_ENABLE_EXTENDED"
_OF_TORCH = (
    "PyTorch found no operator of ONNX for it: export with torch.onnx.export(dynamo=True), with a newer opset, or "
    "write it in others"
)
_OF_TENSORRT = "TensorRT alone has it: export the model without its plugins, quantised with ONNX's QuantizeLinear"
_OF_QONNX = "export it with QuantizeLinear and DequantizeLinear: brevitas.export.export_onnx_qcdq"
_OF_MMDEPLOY = "mmdeploy has it for another runtime: deploy for onnxruntime, and end the model in front of what is left"
_OF_DOMAINS = {
    "com.microsoft.nchwc": _AT_MOST_EXTENDED,
    "com.ms.internal.nhwc": _AT_MOST_EXTENDED,
    "aten": _OF_TORCH,
    "prim": _OF_TORCH,
    "org.pytorch.aten": _OF_TORCH,
    "torchvision": _OF_TORCH,
    "trt": _OF_TENSORRT,
    "trt.plugins": _OF_TENSORRT,
    "mmdeploy": _OF_MMDEPLOY,
    "mmcv": _OF_MMDEPLOY,
    "onnx.brevitas": _OF_QONNX,
    "finn.custom_op.general": _OF_QONNX,
    "qonnx.custom_op.general": _OF_QONNX,
    "com.amd.quark": "let the quantiser write ONNX's QuantizeLinear and DequantizeLinear",
    "ai.onnx.contrib": (
        "onnxruntime-extensions has it, for texts and files: begin or end the model at numbers (model.inputs, "
        "model.outputs)"
    ),
    "ai.onnx.preview.training": "an engine does not train: export the model for inference",
    "ai.onnx.training": "an engine does not train: export the model for inference",
    "ai.onnx.ml": (
        "engines compute numbers, not strings or maps: end the model in front of it (model.outputs), or let "
        "hummingbird-ml make tensors' operators of the pipeline"
    ),
}
_OTHER_FORM = (
    "it is known with other attributes, inputs or extents, from opset 11 on: compare it with onnxruntime's "
    "docs/ContribOperators.md, and export it as that says, or without it"
)
_STEPS = "an engine computes one step of a sequence: export the decoder that is inside of it"
_OF_ONNXRUNTIME = {
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), _STEPS),
    "EPContext": "it holds what was compiled for one device: give bolt-build the model that it was made of",
    "Tokenizer": "engines compute numbers: begin the model behind it (model.inputs)",
}
"""What helps where com.microsoft has such an operator."""
_DRAWN = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Operators that draw random numbers."""
_COUNTED = ("NonMaxSuppression", "NonZero", "Unique")
"""Operators that give as many elements as data decide."""
COUNTED = "data decide how many it finds, and shapes are static: end the model in front of it"
"""Where that is depends on the whole model: `ended` says it."""


def missing_operators(
    nodes: Iterable[OnnxNode],
    table: ImporterTable,
    unroll: Callable[[Iterable[OnnxNode]], str],
    named: Collection[str],
) -> list[Diagnostic]:
    """One diagnostic an operator that cannot be imported, with the names of its nodes. `unroll` says what to do about
    control flow, `named` are the tensors that a recipe can name."""
    groups: dict[tuple[str, str], list[OnnxNode]] = {}
    for node in nodes:
        if table.find(node) is None:
            groups.setdefault((node.domain, node.op_type), []).append(node)
    found = []
    for (domain, op_type), same in sorted(groups.items()):
        label = f"{domain}.{op_type}" if domain else op_type
        where = f"{'node' if len(same) == 1 else 'nodes'} {listed([node.name for node in same])}"
        versions = table.versions(same[0])
        if versions and not domain and same[0].since_version == NO_SCHEMA:
            # torch.export writes DeformConv into models of opset 18.
            message = f"the model's opset has no operator {label}, which opset {min(versions)} has: {where}"
            found.append(Diagnostic("unsupported-op-version", message, hint=_NEWER))
        elif versions:
            known = ", ".join(map(str, versions))
            message = f"version {same[0].since_version} of operator {label} is not supported (known: {known}): {where}"
            found.append(Diagnostic("unsupported-op-version", message, hint=_CONVERT))
        elif op_type in CONTROL_FLOW and not domain:
            message = f"control flow is not supported: operator {label}, {where}"
            found.append(Diagnostic("unsupported-op", message, hint=unroll(same)))
        elif _has_function(same[0]):
            message = f"operator {label} is not supported in the form that it has here: {where}"
            found.append(Diagnostic("unsupported-op", message, hint=_OTHER_FORM))
        else:
            message = f"operator {label} is not supported: {where}"
            hint = _maps(same[0]) or _drawn(same, named) or _of_domain(same[0]) or ends_at_data(same[0]) or _REPLACE
            found.append(Diagnostic("unsupported-op", message, hint=hint))
    return found


def _has_function(node: OnnxNode) -> bool:
    """Whether an operator is imported as a function, of which there is none for this node."""
    if node.domain != "com.microsoft":
        return False
    # It imports onnx, which takes a third of a second, and most models have no such operator.
    from bolt_build.graph.onnx_model.contrib_bodies import OPERATORS

    return node.op_type in OPERATORS


def _of_domain(node: OnnxNode) -> str | None:
    """What helps where nodes are of a domain that is known."""
    own = _OF_ONNXRUNTIME.get(node.op_type) if node.domain == "com.microsoft" else None
    return own or _OF_DOMAINS.get(node.domain)


def _drawn(nodes: Sequence[OnnxNode], named: Collection[str]) -> str | None:
    """What helps where nodes draw random numbers."""
    if nodes[0].domain or nodes[0].op_type not in _DRAWN:
        return None
    names = [node.outputs[0] for node in nodes if node.outputs[0] in named]
    return f"an engine draws no random numbers: give them to it{as_key('inputs', names)}"


def as_key(key: str, names: Sequence[str]) -> str:
    """How a recipe says it, with the names where there are any."""
    return f", as model.{key}: [{', '.join(repr(name) for name in names)}]" if names else f" (model.{key})"


def ended(found: Diagnostic, names: Sequence[str]) -> Diagnostic:
    """A diagnostic of the whole model, whose hint says at which tensors to end it."""
    if found.hint != COUNTED:
        return found
    return replace(found, hint=f"{COUNTED}{as_key('outputs', names)}")


def all_nodes(nodes: Iterable[OnnxNode]) -> Iterator[OnnxNode]:
    """Nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for branch in node.branches:
            yield from all_nodes(branch.nodes)


def _maps(node: OnnxNode) -> str | None:
    """What helps in front of maps from labels to numbers."""
    if (node.domain, node.op_type) != ("ai.onnx.ml", "ZipMap"):
        return None
    return (
        f"its maps are the columns of '{node.inputs[0]}' by label: end the model there (model.outputs), or "
        "convert it without maps (zipmap=False)"
    )


def ends_at_data(node: OnnxNode) -> str | None:
    """What helps where data decide how many elements a node gives."""
    return COUNTED if not node.domain and node.op_type in _COUNTED else None
