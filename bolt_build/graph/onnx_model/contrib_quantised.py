"""Functions of quantised operators of the domain com.microsoft: tables, filters and experts of few bits as the numbers
that they stand for.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from onnx import TensorProto

from bolt_build.graph.onnx_model.contrib_body import DOMAIN, Attributes, Body, Ports, Writer, port_of


def _quantised_mean(body: Body, ports: Ports, at: Attributes) -> bool:
    """The mean of numbers with a scale and a zero point, with others."""
    x = port_of(ports, 0)
    if x is None or not port_of(ports, 2) or not port_of(ports, 4):
        return False
    axes = [axis % len(x.shape) for axis in at.get("axes", range(len(x.shape)))]
    keeps = int(at.get("keepdims", 1))
    real = body("DequantizeLinear", "i0 i1 i2")
    body("QuantizeLinear", f"{body.reduced('ReduceMean', real, axes, keeps=keeps)} i3 i4", "o0")
    return True


def _quantised_conv(body: Body, ports: Ports, at: Attributes) -> bool:
    """ONNX's QLinearConv, of images whose channels may come last."""
    x, given = port_of(ports, 0), {name: value for name, value in at.items() if name != "channels_last"}
    rest = " ".join(f"i{index}" for index in range(1, len(ports)) if port_of(ports, index))
    if not at.get("channels_last", 0):
        body("QLinearConv", f"i0 {rest}", "o0", **given)
        return True
    if x is None or len(x.shape) < 3:
        return False
    rank = len(x.shape)
    image = body("Transpose", "i0", perm=[0, rank - 1, *range(1, rank - 1)])
    made = body("QLinearConv", f"{image} {rest}", **given)
    body("Transpose", made, "o0", perm=[0, *range(2, rank), 1])
    return True


def _largest(body: Body, ports: Ports, at: Attributes) -> bool:
    """MaxPool of bytes whose channels come last. Before opset 12 it had none of bytes."""
    x = port_of(ports, 0)
    if x is None or len(x.shape) < 3:
        return False
    rank = len(x.shape)
    image = body("Transpose", "i0", perm=[0, rank - 1, *range(1, rank - 1)])
    if body.opset < 12:
        real = body("MaxPool", body("Cast", image, to=TensorProto.FLOAT), **dict(at))
        made = body("Cast", real, to=x.elem_type)
    else:
        made = body("MaxPool", image, **dict(at))
    body("Transpose", made, "o0", perm=[0, *range(2, rank), 1])
    return True


def _shares(body: Body, ports: Ports, at: Attributes) -> bool:
    """A softmax between scales and zero points. onnxruntime takes any scale of the result for 1/256."""
    x, axis = port_of(ports, 0), int(at.get("axis", -1))
    if x is None or not x.shape or not port_of(ports, 2) or not port_of(ports, 4):
        return False
    real, last, single = body("DequantizeLinear", "i0 i1 i2"), len(x.shape) - 1, int(at.get("opset", 13)) >= 13
    axis %= len(x.shape)
    if axis == last or (single and body.opset >= 13):
        made = body("Softmax", real, axis=axis)
    elif single:
        order = [each for each in range(last + 1) if each != axis] + [axis]
        made = body("Softmax", body("Transpose", real, perm=order), axis=last)
        made = body("Transpose", made, perm=[order.index(each) for each in range(last + 1)])
    else:
        made = body("Softmax", body("Flatten", real, axis=axis), axis=1)
        made = body("Reshape", f"{made} {body('Shape', 'i0')}")
    body("QuantizeLinear", f"{made} i3 i4", "o0")
    return True


def _embeddings(body: Body, ports: Ports, at: Attributes) -> bool:
    """The norm of sums of rows of tables, each with a scale and a zero point."""

    def real(index: int, place: int) -> str:
        return body("DequantizeLinear", f"i{index} i{8 + place} i{13 + place}")

    if len(ports) < 18 or any(port_of(ports, index) is None for index in (2, 3, 5, 6)):
        return False
    has = [port_of(ports, index) is not None for index in (1, 4, 7)]
    segments = real(4, 2) if has[0] and has[1] else ""
    inputs = ["i0", "i1" if segments else "", real(2, 0), real(3, 1), segments, real(5, 3), real(6, 4)]
    given = {"epsilon": at["epsilon"]} if "epsilon" in at else {}
    body.all(
        "EmbedLayerNormalization", [*inputs, *(["i7"] if has[2] else [])], ["o0", "o1"], domain=DOMAIN, **given
    )  # fmt: skip
    return True


def _experts(body: Body, ports: Ports, at: Attributes) -> bool:
    """MoE, with the numbers that weights of few bits stand for."""
    x = port_of(ports, 0)
    if x is None or port_of(ports, 14) is not None:
        return False
    inputs = ["i0", "i1"]
    for index in range(3):
        first = 3 * index + 2
        if port_of(ports, first) is None:
            inputs += ["", ""]
            continue
        bits = at.get(f"fc{index + 1}_expert_weight_bits", at.get("expert_weight_bits", 4))
        weights = _weights(body, ports, index, int(bits), int(at.get("block_size", 0)))
        if weights is None:
            return False
        inputs += [body("Cast", weights, to=x.elem_type), f"i{first + 2}" if port_of(ports, first + 2) else ""]
    while not inputs[-1]:
        inputs.pop()
    taken = (
        "activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights", "swiglu_fusion",
        "swiglu_limit", "use_sparse_mixer",
    )  # fmt: skip
    body.all("MoE", inputs, ["o0"], domain=DOMAIN, **{name: at[name] for name in taken if name in at})
    return True


def _weights(body: Body, ports: Ports, index: int, bits: int, block: int) -> str | None:
    """[experts, columns, depth] in fp32 of weights of product `index`; None where they are none that are known."""
    first = 3 * index + 2
    packed, zeros = port_of(ports, first), port_of(ports, 11 + index)
    if packed is None or len(packed.shape) != 3 or bits not in (2, 4, 8) or port_of(ports, first + 1) is None:
        return None
    experts, columns, width = packed.shape
    blocks = (width * 8 // bits) // block if block else 1
    q = _apart(body, body("Cast", f"i{first}", to=TensorProto.INT32), bits, [experts, columns, blocks, -1])
    if zeros is None:
        zero = body.numbers([1 << (bits - 1)], TensorProto.FLOAT)
    else:
        held = body("Cast", f"i{11 + index}", to=TensorProto.INT32)
        zero = _apart(body, held, bits, [experts, columns, -1, 1] if block else [experts, columns, 1, 1])
        zero = body.part(zero, 2, 0, blocks)
    scale = body("Cast", f"i{first + 1}", to=TensorProto.FLOAT)
    scale = body("Reshape", f"{scale} {body.numbers([experts, columns, blocks, 1])}")
    plain = body("Mul", f"{body('Sub', f'{q} {zero}')} {scale}")
    return body("Reshape", f"{plain} {body.numbers([experts, columns, -1])}")


def _apart(body: Body, packed: str, bits: int, shape: list[int]) -> str:
    """int32 of which each holds several numbers, the lowest bits first, as fp32 of a shape."""
    size = body.numbers([1 << bits], TensorProto.INT32)
    parts, rest = [], body("Reshape", f"{packed} {body.numbers([-1, 1])}")
    for _ in range(8 // bits):
        above = body("Div", f"{rest} {size}")
        parts.append(body("Sub", f"{rest} {body('Mul', f'{above} {size}')}"))
        rest = above
    whole = body("Concat", " ".join(parts), axis=1)
    return body("Cast", body("Reshape", f"{whole} {body.numbers(shape)}"), to=TensorProto.FLOAT)


QUANTISED: dict[str, Writer] = {
    "NhwcMaxPool": _largest, "QEmbedLayerNormalization": _embeddings, "QLinearConv": _quantised_conv,
    "QLinearReduceMean": _quantised_mean, "QLinearSoftmax": _shares, "QMoE": _experts,
}  # fmt: skip
"""By operator."""
