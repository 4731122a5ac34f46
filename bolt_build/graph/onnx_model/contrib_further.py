"""Further functions of the domain com.microsoft: products and gates with what is around them, biases of positions,
transforms and complex numbers.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from bolt_build.graph.onnx_model.contrib_body import DOMAIN, Attributes, Body, Ports, Writer, port_of


def _text(at: Attributes, name: str, default: str = "") -> str:
    found: Any = at.get(name, default)
    return found.decode() if isinstance(found, bytes) else str(found)


def _gemm_gelu(body: Body, ports: Ports, at: Attributes) -> bool:
    """Gelu, by its approximation, of a product and a bias."""
    bias = " i2" if port_of(ports, 2) else ""
    body("FastGelu", f"{body('MatMul', 'i0 i1')}{bias}", "o0", domain=DOMAIN)
    return True


def _activated(body: Body, x: str, at: Attributes, parameters: tuple[Any, ...], output: str) -> bool:
    """The activation that the node names, with the parameters that it takes."""
    kind = _text(at, "activation")
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}
    if kind not in ("", "Relu", "Tanh", "Sigmoid", *names):
        return False
    given = zip(names.get(kind, ()), parameters, strict=False)
    body(kind or "Identity", x, output, **{name: float(value) for name, value in given})
    return True


def _fused_matmul(body: Body, ports: Ports, at: Attributes) -> bool:
    """A product with what FusedMatMul takes, and an activation."""
    taken = ("alpha", "transA", "transB", "transBatchA", "transBatchB")
    made = body("FusedMatMul", "i0 i1", domain=DOMAIN, **{name: at[name] for name in taken if name in at})
    names = ("activation_alpha", "activation_beta")
    return _activated(body, made, at, tuple(at[name] for name in names if name in at), "o0")


def _nhwc_fused_conv(body: Body, ports: Ports, at: Attributes) -> bool:
    """Images have their channels last, filters theirs first; input 3 is added."""
    x = port_of(ports, 0)
    if x is None or len(x.shape) != 4:
        return False
    given = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    bias = " i2" if port_of(ports, 2) else ""
    image = body("Transpose", "i0", perm=[0, 3, 1, 2])
    made = body("Conv", f"{image} i1{bias}", **{name: at[name] for name in given if name in at})
    made = body("Transpose", made, perm=[0, 2, 3, 1])
    if port_of(ports, 3):
        made = body("Add", f"{made} i3")
    return _activated(body, made, at, tuple(at.get("activation_params", ())), "o0")


def _swiglu(body: Body, ports: Ports, at: Attributes) -> bool:
    """A gate's swish times a factor, both within limits where there are any; both are halves of rows where there is one
    input."""
    x = port_of(ports, 0)
    if x is None or not x.shape or not x.shape[-1]:
        return False
    gate, factor = "i0", "i1"
    if not port_of(ports, 1):
        half = x.shape[-1] // 2
        gate, factor = (body.part("i0", -1, begin, begin + half) for begin in (0, half))
    limit = float(at.get("limit", 0.0))
    if limit > 0:
        least, most = (
            body("Reshape", f"{body.numbers([each], x.elem_type)} {body.none()}") for each in (-limit, limit)
        )
        factor = body("Min", f"{body('Max', f'{factor} {least}')} {most}")
        gate = body("Min", f"{gate} {most}")
    opened = body("QuickGelu", gate, domain=DOMAIN, alpha=float(at.get("activation_alpha", 1.0)))
    if beta := float(at.get("activation_beta", 0.0)):
        factor = body("Add", f"{factor} {body.numbers([beta], x.elem_type)}")
    body("Mul", f"{opened} {factor}", "o0")
    return True


def _position_bias(body: Body, ports: Ports, at: Attributes) -> bool:
    """T5's: distances of queries from keys in buckets, the far ones in logarithmic ones; rows of a table by bucket.
    Queries and keys are as many."""
    table, most = port_of(ports, 0), at.get("max_distance", 0)
    if table is None or len(table.shape) != 2 or not table.shape[0] or not isinstance(most, int):
        return False
    both = bool(at.get("is_bidirectional", 0))
    buckets = table.shape[0] // 2 if both else table.shape[0]
    exact = buckets // 2
    if exact < 1 or most <= exact:
        return False
    single = body.none()
    zero, one = (body("Reshape", f"{body.numbers([each])} {single}") for each in (0, 1))
    rows, columns = (body("Range", f"{zero} {body('Reshape', f'{name} {single}')} {one}") for name in ("i1", "i2"))
    away = body("Sub", f"{columns} {body('Reshape', f'{rows} {body.numbers([-1, 1])}')}")
    distance = body("Abs", away) if both else body("Neg", body("Min", f"{away} {zero}"))
    real = body("Cast", body("Max", f"{distance} {one}"), to=TensorProto.FLOAT)
    ratio = body("Log", body("Div", f"{real} {body.numbers([exact], TensorProto.FLOAT)}"))
    step = float(np.float32(buckets - exact) / np.log(np.float32(most / exact)))
    far = body("Cast", body("Mul", f"{ratio} {body.numbers([step], TensorProto.FLOAT)}"), to=TensorProto.INT64)
    far = body("Min", f"{body('Add', f'{far} {body.numbers([exact])}')} {body.numbers([buckets - 1])}")
    found = body("Where", f"{body('Less', f'{distance} {body.numbers([exact])}')} {distance} {far}")
    if both:
        behind = body("Cast", body("Greater", f"{away} {zero}"), to=TensorProto.INT64)
        found = body("Add", f"{found} {body('Mul', f'{behind} {body.numbers([buckets])}')}")
    picked = body("Transpose", body("Gather", f"i0 {found}", axis=0), perm=[2, 0, 1])
    shape = body("Concat", f"{body.numbers([1])} {body('Shape', picked)}", axis=0)
    body("Reshape", f"{picked} {shape}", "o0")
    return True


def _gated_position_bias(body: Body, ports: Ports, at: Attributes) -> bool:
    """WavLM's: what is added to scores, times a gate of each query and head."""
    queries, weights, heads = port_of(ports, 0), port_of(ports, 3), at.get("num_heads", 0)
    if queries is None or weights is None or port_of(ports, 6) or not isinstance(heads, int) or heads < 1:
        return False
    if len(queries.shape) != 3 or len(weights.shape) != 2 or weights.shape[1] < 2 or weights.shape[1] % 2:
        return False
    apart = body("Reshape", f"{body('Add', 'i0 i1')} {body.numbers([0, 0, heads, -1])}")
    by_head = body("Transpose", apart, perm=[0, 2, 1, 3])
    found = body("Add", f"{body('MatMul', f'{by_head} i3')} i4")
    halves = body("Reshape", f"{found} {body.numbers([0, 0, 0, 2, weights.shape[1] // 2])}")
    ones = body(
        "Reshape", f"{body.numbers([1.0] * (weights.shape[1] // 2), weights.elem_type)} {body.numbers([-1, 1])}"
    )
    sums = body("Reshape", f"{body('MatMul', f'{halves} {ones}')} {body.numbers([0, 0, 0, 2])}")
    gates = body("Sigmoid", sums)
    update, reset = (body.part(gates, 3, begin, begin + 1) for begin in (0, 1))
    inner = body("Sub", f"{body('Mul', f'{reset} i5')} {body.numbers([1.0], weights.elem_type)}")
    gate = body("Add", f"{body('Mul', f'{update} {inner}')} {body.numbers([2.0], weights.elem_type)}")
    body("Mul", f"{gate} i2", "o0")
    return True


def _gemma_rotary(body: Body, ports: Ports, at: Attributes) -> bool:
    """Queries and keys turned by angles [N, S, D], of which both are given a second time with halves swapped."""
    angles, queries = port_of(ports, 0), port_of(ports, 1)
    if angles is None or queries is None or len(angles.shape) != 3:
        return False
    shape = body("Shape", "i0")
    first, rest = (body.part(shape, 0, begin, end) for begin, end in ((0, 1), (1, 3)))
    apart = body("Concat", f"{first} {body.numbers([1])} {rest}", axis=0)
    sin, cos = (
        body("Reshape", f"{body('Cast', body(kind, 'i0'), to=queries.elem_type)} {apart}") for kind in ("Sin", "Cos")
    )
    for x, swapped, output in (("i1", "i2", "o0"), ("i3", "i4", "o1")):
        body("Add", f"{body('Mul', f'{x} {cos}')} {body('Mul', f'{swapped} {sin}')}", output)
    return True


def _complex_product(conjugate: bool) -> Writer:
    """Of numbers whose real and imaginary parts are the last axis; of the second one's conjugate, where asked."""

    def run(body: Body, ports: Ports, at: Attributes) -> bool:
        if any(port is None or not port.shape or port.shape[-1] != 2 for port in ports):
            return False
        a, b, c, d = (body.part(x, -1, i, i + 1) for x in ("i0", "i1") for i in (0, 1))
        ac, bd, ad, bc = (body("Mul", f"{x} {y}") for x, y in ((a, c), (b, d), (a, d), (b, c)))
        real = body("Add" if conjugate else "Sub", f"{ac} {bd}")
        imaginary = body("Sub" if conjugate else "Add", f"{bc} {ad}" if conjugate else f"{ad} {bc}")
        body("Concat", f"{real} {imaginary}", "o0", axis=-1)
        return True

    return run


def _transform(body: Body, ports: Ports, at: Attributes) -> bool:
    """Rows of real numbers as their frequencies up to half of them, [..., n / 2 + 1, 2]."""
    x = port_of(ports, 0)
    if x is None or not _is_plain(at) or not x.shape or x.shape[-1] < 2 or x.shape[-1] % 2:
        return False
    count = x.shape[-1]
    turns = 2 * np.pi * np.outer(np.arange(count), np.arange(count // 2 + 1)) / count
    table = np.stack((np.cos(turns), -np.sin(turns)), -1).reshape(count, -1)
    made = body("MatMul", f"i0 {body.numbers(table.tolist(), x.elem_type)}")
    body("Reshape", f"{made} {body.numbers([*(0,) * (len(x.shape) - 1), count // 2 + 1, 2])}", "o0")
    return True


def _back_transform(body: Body, ports: Ports, at: Attributes) -> bool:
    """The rows whose frequencies these are."""
    x = port_of(ports, 0)
    if x is None or not _is_plain(at) or len(x.shape) < 2 or x.shape[-1] != 2 or x.shape[-2] < 2:
        return False
    half = x.shape[-2]
    count = 2 * (half - 1)
    turns = 2 * np.pi * np.outer(np.arange(half), np.arange(count)) / count
    times = np.where((np.arange(half) % (half - 1) == 0)[:, None], 1.0, 2.0) / count
    table = np.stack((np.cos(turns) * times, -np.sin(turns) * times), 1).reshape(2 * half, count)
    flat = body("Reshape", f"i0 {body.numbers([*(0,) * (len(x.shape) - 2), -1])}")
    body("MatMul", f"{flat} {body.numbers(table.tolist(), x.elem_type)}", "o0")
    return True


def _is_plain(at: Attributes) -> bool:
    """Whether a transform is of one axis, of one side, and without a factor."""
    return (at.get("signal_ndim", 1), at.get("onesided", 1), at.get("normalized", 0)) == (1, 1, 0)


def _gated_norm(body: Body, ports: Ports, at: Attributes) -> bool:
    """The norm of each run of as many elements as there are scales, times an activation of the gate."""
    x, scale = port_of(ports, 0), port_of(ports, 1)
    kind = _text(at, "activation", "silu")
    if x is None or scale is None or len(scale.shape) != 1 or kind not in ("silu", "swish", "sigmoid"):
        return False
    if not x.shape or not scale.shape[0] or x.shape[-1] % scale.shape[0]:
        return False
    runs = body("Reshape", f"i0 {body.numbers([-1, scale.shape[0]])}")
    norm = body("Reshape", f"{_rms_norm(body, runs, 'i1', x.elem_type, at)} {body('Shape', 'i0')}")
    gate = body("Sigmoid", "i2")
    if kind != "sigmoid":
        gate = body("Mul", f"i2 {gate}")
    body("Mul", f"{norm} {gate}", "o0")
    return True


def _branchwise_norm(body: Body, ports: Ports, at: Attributes) -> bool:
    """The norm of each branch, x being [..., branches, elements], or with both as one axis."""
    x, scale, count = port_of(ports, 0), port_of(ports, 1), at.get("num_branches", 0)
    if x is None or not isinstance(count, int) or len(x.shape) < 2 - bool(count):
        return False
    branches, wide = (count, x.shape[-1] // count) if count else x.shape[-2:]
    if not wide or not branches or (count and x.shape[-1] % count):
        return False
    runs = body("Reshape", f"i0 {body.numbers([-1, branches, wide])}")
    ones = body.numbers([1.0] * wide, x.elem_type)
    found = _rms_norm(body, runs, ones, x.elem_type, at)
    if scale is not None:
        shape = [wide] if scale.shape == (wide,) else [branches, wide]
        given = body("Reshape", f"{body('Cast', 'i1', to=x.elem_type)} {body.numbers(shape)}")
        found = body("Mul", f"{found} {given}")
    body("Reshape", f"{found} {body('Shape', 'i0')}", "o0")
    return True


def _rms_norm(body: Body, x: str, scale: str, elem_type: int, at: Attributes) -> str:
    given = body("Cast", scale, to=elem_type)
    epsilon = float(at.get("epsilon", 1e-6))
    return body("SimplifiedLayerNormalization", f"{x} {given}", axis=-1, epsilon=epsilon)


FURTHER: dict[str, Writer] = {
    "BranchwiseRMSNorm": _branchwise_norm, "ComplexMul": _complex_product(False),
    "ComplexMulConj": _complex_product(True), "FusedMatMulActivation": _fused_matmul, "GatedRMSNorm": _gated_norm,
    "GatedRelativePositionBias": _gated_position_bias, "GemmFastGelu": _gemm_gelu,
    "GemmaRotaryEmbedding": _gemma_rotary, "Irfft": _back_transform, "NhwcFusedConv": _nhwc_fused_conv,
    "RelativePositionBias": _position_bias, "Rfft": _transform, "SwiGLU": _swiglu,
}  # fmt: skip
"""By operator."""
