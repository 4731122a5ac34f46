"""Operators of the domain com.microsoft that onnxruntime has on GPUs alone, computes less exactly than they are defined
(CDist, QMoE), or whose rounding follows from that of what they are made of, as functions of ONNX's own operators.

Import and verification write them out so: no other runtime on a CPU would say what they compute. Defined in
onnxruntime's docs/ContribOperators.md, and NhwcConv, whose filters have their channels last, by what its tools write
(`fusion_nhwc_conv.py`).

Import this only where such an operator is met: it imports onnx.
"""

from __future__ import annotations

from onnx import FunctionProto, helper

from bolt_build.graph.onnx_model.contrib_body import DOMAIN, Attributes, Body, Port, Ports, Writer, port_of
from bolt_build.graph.onnx_model.contrib_further import FURTHER
from bolt_build.graph.onnx_model.contrib_quantised import QUANTISED

LEAST_OPSET = 11
"""Of ONNX's own, which the functions are written in."""


def _bias_add(body: Body, ports: Ports, at: Attributes) -> bool:
    body("Add", f"{body('Add', 'i0 i1')} i2", "o0")
    return True


def _bias_dropout(body: Body, ports: Ports, at: Attributes) -> bool:
    body("Add", f"{body('Add', 'i0 i1')} i2" if port_of(ports, 2) else "i0 i1", "o0")
    return True


def _bias_split_gelu(body: Body, ports: Ports, at: Attributes) -> bool:
    """Of both halves of each row the first, times gelu of the second."""
    x, bias = port_of(ports, 0), port_of(ports, 1)
    if x is None or bias is None or len(bias.shape) != 1 or bias.shape[0] < 2 or bias.shape[0] % 2:
        return False
    total, width = body("Add", "i0 i1"), bias.shape[0] // 2
    first, gate = (body.part(total, -1, begin, begin + width) for begin in (0, width))
    body("Mul", f"{first} {body('Gelu', gate, domain=DOMAIN)}", "o0")
    return True


def _bias_softmax(body: Body, ports: Ports, at: Attributes) -> bool:
    """Over the last axis, of biases that are spread as ONNX spreads operands."""
    x, bias = port_of(ports, 0), port_of(ports, 1)
    if x is None or bias is None or at.get("axis", 1) not in (-1, len(x.shape) - 1):
        return False
    spread = zip(bias.shape, x.shape, strict=True) if len(bias.shape) == len(x.shape) else [(2, 1)]
    if any(each not in (1, extent) and 0 not in (each, extent) for each, extent in spread):
        return False
    body("Softmax", body("Add", "i0 i1"), "o0", axis=len(x.shape) - 1)
    return True


def _group_norm(body: Body, ports: Ports, at: Attributes) -> bool:
    return _normed(body, port_of(ports, 0), "i0", at)


def _skip_group_norm(body: Body, ports: Ports, at: Attributes) -> bool:
    """Of the sum with input 3, and with a bias of each channel; the sum is output 1."""
    skip, added = port_of(ports, 3), "i3"
    if skip is None:
        return False
    last = bool(at.get("channels_last", 1))
    if len(skip.shape) == 2:
        spread = [0, 1, 1, -1] if last else [0, -1, 1, 1]
        added = body("Reshape", f"i3 {body.numbers(spread)}")
    total = body("Add", f"i0 {added}")
    if port_of(ports, 4) is not None:
        wide = body("Reshape", f"i4 {body.numbers([1, 1, 1, -1] if last else [1, -1, 1, 1])}")
        total = body("Add", f"{total} {wide}")
    body("Identity", total, "o1")
    return _normed(body, port_of(ports, 0), total, at)


def _normed(body: Body, port: Port | None, x: str, at: Attributes) -> bool:
    """Channels normalised in groups, then SiLU where `activation` asks for it."""
    groups = at.get("groups", 0)
    if port is None or len(port.shape) != 4 or not isinstance(groups, int) or groups < 1:
        return False
    last = bool(at.get("channels_last", 1))
    plain = body("Transpose", x, perm=[0, 3, 1, 2]) if last else x
    grouped = body("Reshape", f"{plain} {body.numbers([0, groups, -1])}")
    ones, zeros = (body.numbers([each] * groups, port.elem_type) for each in (1.0, 0.0))
    found = body("InstanceNormalization", f"{grouped} {ones} {zeros}", epsilon=at.get("epsilon", 1e-5))
    found = body("Reshape", f"{found} {body('Shape', plain)}")
    scale, bias = (
        body("Cast", body("Reshape", f"{name} {body.numbers([-1, 1, 1])}"), to=port.elem_type) for name in ("i1", "i2")
    )
    found = body("Add", f"{body('Mul', f'{found} {scale}')} {bias}")
    if at.get("activation"):
        found = body("Mul", f"{found} {body('Sigmoid', found)}")
    body("Transpose", found, "o0", perm=[0, 2, 3, 1]) if last else body("Identity", found, "o0")
    return True


def _nhwc_conv(body: Body, ports: Ports, at: Attributes) -> bool:
    """Images, and filters too, with their channels last."""
    x, filters = port_of(ports, 0), port_of(ports, 1)
    if x is None or filters is None or len(x.shape) != 4 or len(filters.shape) != 4:
        return False
    if tuple(filters.shape[1:3]) != tuple(at.get("kernel_shape", filters.shape[1:3])):
        return False
    image, turned = (body("Transpose", name, perm=[0, 3, 1, 2]) for name in ("i0", "i1"))
    given = ("auto_pad", "dilations", "group", "pads", "strides")
    bias = " i2" if port_of(ports, 2) else ""
    made = body("Conv", f"{image} {turned}{bias}", **{name: at[name] for name in given if name in at})
    body("Transpose", made, "o0", perm=[0, 2, 3, 1])
    return True


def _distances(body: Body, ports: Ports, at: Attributes) -> bool:
    """Of each row of input 0 from each of input 1, or its square. |a|^2 - 2 a b + |b|^2 would lose what rows have in
    common."""
    metric = at.get("metric", "sqeuclidean")
    name = metric.decode() if isinstance(metric, bytes) else metric
    way = {"euclidean": "ReduceL2", "sqeuclidean": "ReduceSumSquare"}.get(name)
    if way is None or any(port is None or len(port.shape) != 2 for port in ports):
        return False
    rows = body("Reshape", f"i0 {body.numbers([0, 1, -1])}")
    body.reduced(way, body("Sub", f"{rows} i1"), [2], "o0")
    return True


_WRITERS: dict[str, Writer] = {
    "BiasAdd": _bias_add, "BiasDropout": _bias_dropout, "BiasSoftmax": _bias_softmax,
    "BiasSplitGelu": _bias_split_gelu, "CDist": _distances, "GroupNorm": _group_norm, "NhwcConv": _nhwc_conv,
    "SkipGroupNorm": _skip_group_norm, **FURTHER, **QUANTISED,
}  # fmt: skip

OPERATORS = tuple(sorted(_WRITERS))
"""Those that are written out, by name."""


def body_of_contrib(
    op_type: str, attributes: Attributes, ports: Ports, outputs: int, opset: int
) -> FunctionProto | None:
    """The function of a node with these inputs (None: left out), with its first `outputs` outputs. None where there is
    none."""
    writer = _WRITERS.get(op_type)
    body = Body(opset)
    if writer is None or opset < LEAST_OPSET or not writer(body, ports, attributes):
        return None
    made = {name for step in body.steps for name in step.output}
    names = [f"o{index}" for index in range(outputs)]
    if not made.issuperset(names):
        return None
    inputs = [f"i{index}" for index in range(len(ports))]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, op_type, inputs, names, body.steps, imports)
