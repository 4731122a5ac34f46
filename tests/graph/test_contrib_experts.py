"""Mixtures of experts of com.microsoft beside onnxruntime's; in NumPy where it has no kernel on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import model, node, saved, tensor

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.verify.models.written_out import written_out

RANDOM = np.random.default_rng(2)
EXPERTS, WIDE, INNER = 4, 8, 6


def proto(kind: str, tokens: int = 5, bias: bool = False, second: bool = False, **attributes: Any) -> onnx.ModelProto:
    both = 2 if attributes.get("swiglu_fusion") else 1
    shapes = {
        "w1": (EXPERTS, both * INNER, WIDE), "b1": (EXPERTS, both * INNER), "w2": (EXPERTS, WIDE, INNER),
        "b2": (EXPERTS, WIDE), "w3": (EXPERTS, INNER, WIDE), "b3": (EXPERTS, INNER),
    }  # fmt: skip
    wanted = [n for n in shapes if (bias or n[0] == "w") and (second or n[1] != "3")]
    constants = {n: RANDOM.standard_normal(shapes[n]).astype(np.float32) for n in wanted}
    inputs = " ".join(n if n in wanted else "-" for n in shapes)
    made = node("MoE", f"x r {inputs}", "y", "mix", domain="com.microsoft", activation_type=kind, **attributes)
    while not made.input[-1]:
        made.input.pop()
    ports = [tensor("x", [tokens, WIDE]), tensor("r", [tokens, EXPERTS])]
    return model([made], ports, constants=constants, opsets=[("com.microsoft", 1)])


def computed(tmp_path: Path, made: onnx.ModelProto, tokens: int = 5) -> tuple[Array, dict[str, Array]]:
    given = {
        "x": RANDOM.standard_normal((tokens, WIDE)).astype(np.float32),
        "r": RANDOM.standard_normal((tokens, EXPERTS)).astype(np.float32),
    }  # fmt: skip
    graph = load_model(saved(tmp_path, made)).bind(tokens)
    check(graph)
    return reference.evaluate(graph, given)["y"], given


KNOWN: dict[str, dict[str, Any]] = {
    "relu": {"k": 2}, "shares that add up to one": {"kind": "silu", "k": 2, "normalize_routing_weights": 1},
    "gelu": {"kind": "gelu", "k": 3}, "biases": {"kind": "identity", "k": 2, "bias": True},
    "gates by turns": {"kind": "swiglu", "k": 2, "swiglu_fusion": 1, "bias": True, "activation_alpha": 1.702,
                       "activation_beta": 1.0, "swiglu_limit": 0.7},
    "one token's experts are gathered": {"kind": "silu", "k": 1, "tokens": 1, "bias": True},
    "one expert": {"k": 1, "normalize_routing_weights": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    made = proto(**({"kind": "relu"} | KNOWN[name]))
    found, given = computed(tmp_path, made, KNOWN[name].get("tokens", 5))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(["y"], given)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fusion", [0, 2])
def test_gates_and_factors_may_lie_apart(fusion: int, tmp_path: Path) -> None:
    made = proto("swiglu", second=not fusion, k=2, swiglu_fusion=fusion)
    found, given = computed(tmp_path, made)
    w = {each.name: onnx.numpy_helper.to_array(each) for each in made.graph.initializer}
    first, second = (w["w1"], w["w3"]) if not fusion else (w["w1"][:, :INNER], w["w1"][:, INNER:])
    gate, factor = (np.einsum("th,eih->tei", given["x"], each) for each in (first, second))
    every = np.einsum("tei,ehi->teh", gate / (1 + np.exp(-gate)) * factor, w["w2"])
    shares = np.exp(given["r"]) / np.exp(given["r"]).sum(1, keepdims=True)
    shares[shares < np.sort(shares, 1)[:, -2:-1]] = 0
    np.testing.assert_allclose(found, (shares[..., None] * every).sum(1), rtol=1e-4, atol=1e-4)


def quantised(bits: int, block: int = 0, zeros: bool = False, **attributes: Any) -> onnx.ModelProto:
    wide, inner, both, parts = 32, 16, 2 if attributes.get("swiglu_fusion") else 1, 8 // bits

    def held(*shape: int) -> Array:
        return RANDOM.integers(0, 256, (EXPERTS, *shape)).astype(np.uint8)

    constants: dict[str, Array] = {}
    for number, columns, depth in ((1, both * inner, wide), (2, wide, inner)):
        blocks = (depth // block,) if block else ()
        constants[f"w{number}"] = held(columns, depth // parts)
        constants[f"s{number}"] = 0.1 * RANDOM.random((EXPERTS, columns, *blocks), np.float32)
        constants[f"b{number}"] = RANDOM.standard_normal((EXPERTS, columns)).astype(np.float32)
        if zeros:
            packed = (columns, -(-blocks[0] // parts)) if block else (columns // parts,)
            constants[f"z{number}"] = held(*packed)
    names = f"x r w1 s1 b1 w2 s2 b2{' - - - z1 z2' if zeros else ''}"
    made = node(
        "QMoE", names, "y", "mix", domain="com.microsoft", expert_weight_bits=bits, k=2,
        **({"block_size": block} if block else {}), **({"normalize_routing_weights": 1} | attributes),
    )  # fmt: skip
    ports = [tensor("x", [5, wide]), tensor("r", [5, EXPERTS])]
    return model([made], ports, constants=constants, opsets=[("com.microsoft", 1)])


QUANTISED: dict[str, dict[str, Any]] = {
    "4 bits": {"bits": 4}, "8 bits": {"bits": 8, "activation_type": "silu"}, "blocks": {"bits": 4, "block": 16},
    "zero points of rows": {"bits": 4, "zeros": True}, "of blocks": {"bits": 8, "block": 16, "zeros": True},
    "halves of a byte of blocks": {"bits": 4, "block": 16, "zeros": True},
    "gates": {"bits": 4, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702},
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_weights_of_few_bits_are_the_numbers_that_onnxruntime_reads(name: str, tmp_path: Path) -> None:
    made = quantised(**QUANTISED[name])
    given = {
        "x": RANDOM.standard_normal((5, 32)).astype(np.float32),
        "r": RANDOM.standard_normal((5, EXPERTS)).astype(np.float32),
    }
    found = reference.evaluate(load_model(saved(tmp_path, made)).bind(5), given)["y"]
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(["y"], given)[0]
    # Of blocks of 8 bits onnxruntime rounds the rows to 8 bits too.
    close = 2e-2 if QUANTISED[name].get("block") and QUANTISED[name]["bits"] == 8 else 1e-5
    assert np.abs(found - wanted).max() < close * np.abs(wanted).max()


@pytest.mark.parametrize("name", QUANTISED)
def test_verification_compares_with_those_numbers(name: str, tmp_path: Path) -> None:
    """onnxruntime rounds rows to 8 bits beside some weights, and lets shares add up to one unasked."""
    made = quantised(**QUANTISED[name], normalize_routing_weights=0)
    given = {
        "x": RANDOM.standard_normal((5, 32)).astype(np.float32),
        "r": RANDOM.standard_normal((5, EXPERTS)).astype(np.float32),
    }
    found = reference.evaluate(load_model(saved(tmp_path, made)).bind(5), given)["y"]
    plain = written_out(made).SerializeToString()
    session = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"])
    wanted = session.run(["y"], given)[0]
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


REFUSED = {
    "use_sparse_mixer=1 is not supported": {"kind": "relu", "use_sparse_mixer": 1},
    "activation_type 'relu2' is none of relu, gelu, silu, identity, swiglu": {"kind": "relu2"},
    "swiglu_fusion=3 is none of 0, 1, 2": {"kind": "swiglu", "swiglu_fusion": 3},
    "swiglu_limit_after_activation=1 is not supported": {"kind": "swiglu", "swiglu_limit_after_activation": 1},
    "9 of 4 experts for 5 tokens do not fit an input of [5, 8]": {"kind": "relu", "k": 9},
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals_say_why(reason: str, tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        load_model(saved(tmp_path, proto(**({"k": 2} | REFUSED[reason])))).bind(5)
    assert [each.message for each in raised.value.diagnostics] == [f"MoE 'mix': {reason}"]
