"""Sums along positions that are alike: their roundings all go one way, and grow with their number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net
from fake_engine import Fault
from test_verify_false_alarms import departed, verified

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Node
from bolt_build.verify.judgement import judge
from bolt_build.verify.reference import Reference
from bolt_build.verify.taps import Source, Tap

KEYS = 200


def averages(path: Path, deviation: float) -> Path:
    """BLIP's vision tower as it is initialised: attention and means over positions that differ by
    `deviation` of what they are."""
    random = np.random.RandomState(0)
    net = Net(["N", KEYS, 32])
    row = net.constant("row", 1.0 + random.rand(32))
    small = net.node("Mul", "small", net.node("Tanh", "tanh", "x"), net.constant("deviation", np.float32(deviation)))
    x = net.node("Mul", "rows", net.node("Add", "shifted", small, net.constant("one", np.float32(1.0))), row)
    flat = net.constant("flat", np.float32(0.01 * deviation))
    q, k, v = (net.node("MatMul", p, x, net.constant(f"w{p}", random.standard_normal((32, 32)))) for p in "qkv")
    turned = net.node("Transpose", "turn", k, perm=[0, 2, 1])
    logits = net.node("MatMul", "logits", q, turned)
    shares = net.node("Softmax", "softmax", net.node("Mul", "scaled", logits, flat), axis=-1)
    attended = net.node("MatMul", "attended", shares, v)
    mean = net.node("ReduceMean", "mean", turned, axes=[-1])
    return net.saved(path, net.node("MatMul", "both", attended, mean), ["N", KEYS, 1])


def off_by(part: float) -> Fault:
    """Every element is off by `part` of itself."""

    def fault(node: Node, inputs: list[Array], output: Array) -> Array:
        return output * np.float32(1.0 + part)

    return fault


def test_a_right_engine_passes_where_all_keys_are_alike(tmp_path: Path) -> None:
    assert departed(verified(averages(tmp_path / "net.onnx", 1e-9))) == []


@pytest.mark.parametrize("name", ["softmax", "attended", "mean"])
def test_what_such_roundings_cannot_do_departs(name: str, tmp_path: Path) -> None:
    assert departed(verified(averages(tmp_path / "net.onnx", 1e-9), {name: off_by(1e-4)})) == [name]


def test_a_background_of_one_number_behind_large_ones_may_be_off_by_as_many(tmp_path: Path) -> None:
    """EfficientNet-B5: a mean over an image whose foreground is far larger than its background, and cancels."""
    net = Net(["N", 4, 14, 14])
    image = np.full((14, 14), -0.00435, np.float32)
    image[10:] = 4.0 * np.random.RandomState(3).rand(4, 14)
    still = net.node("Mul", "still", net.node("Tanh", "tanh", "x"), net.constant("nothing", np.zeros(1)))
    image = net.node("Add", "image", still, net.constant("picture", image))
    path = net.saved(tmp_path / "net.onnx", net.node("GlobalAveragePool", "mean", image), ["N", 4, 1, 1])
    assert departed(verified(path, {"mean": summed_backwards})) == []
    assert departed(verified(path, {"mean": off_by(3e-5)})) == ["mean"]


def summed_backwards(node: Node, inputs: list[Array], output: Array) -> Array:
    flat = inputs[0].astype(np.float32).reshape(*output.shape[:2], -1)
    total = np.zeros(flat.shape[:2], np.float32)
    for index in reversed(range(flat.shape[-1])):
        total += flat[..., index]
    return (total / np.float32(flat.shape[-1])).reshape(output.shape)


@pytest.mark.parametrize("name", ["attended", "mean"])
def test_where_the_numbers_differ_they_may_do_less(name: str, tmp_path: Path) -> None:
    small = off_by(5e-6)
    assert departed(verified(averages(tmp_path / "net.onnx", 1e-9), {name: small})) == []
    assert departed(verified(averages(tmp_path / "net.onnx", 1.0), {name: small})) == [name]


def test_sums_of_one_kernel_that_cancel_are_judged_by_what_is_on_the_way(tmp_path: Path) -> None:
    """FocalNet: a product and two sums behind it, of which an engine rounds other steps than onnxruntime."""
    random = np.random.RandomState(4)
    net = Net([1, 200])
    for name in "gabc":
        net.node("Mul", name, "x", net.constant(f"{name}.factor", np.float32(2.0)))
    first = net.node("Add", "first", net.node("Mul", "product", "g", "a"), "b")
    path = net.saved(tmp_path / "net.onnx", net.node("Add", "y", first, "c"), [1, 200])
    held = {name: random.rand(1, 200).astype(np.float32) for name in "gab"}
    held["b"] += 100
    held["c"] = -held["b"] + random.rand(1, 200).astype(np.float32)
    fp32 = DType.F32
    sources = tuple(Source(name, name, fp32) for name in "gabc")
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", (1, 200), sources, fp32, fp32, 1, 1, fp32, False)
    (expected,) = Reference(path, ()).expected([tap], held, {})
    otherwise = held["g"] * held["a"] + (held["b"] + held["c"])
    assert judge(otherwise, expected.tensor, expected.variance, fp32, expected.relative).used < 1
    wrong = otherwise + np.float32(2e-4)
    assert judge(wrong, expected.tensor, expected.variance, fp32, expected.relative).used > 1


@pytest.mark.parametrize("columns", [(), (1,), (2,)])
def test_means_of_one_column_have_the_axes_of_their_result(columns: tuple[int, ...], tmp_path: Path) -> None:
    """D-FINE takes the mean of the distances 0 to 32 by shares: a matrix times a vector."""
    net = Net([1, 4, 33])
    shares = net.node("Softmax", "shares", "x", axis=-1)
    weight = net.constant("distances", np.arange(33 * (columns or (1,))[0]).reshape(33, *columns))
    path = net.saved(tmp_path / "net.onnx", net.node("MatMul", "y", shares, weight), [1, 4, *columns])
    held = {"x": np.random.RandomState(0).rand(1, 4, 33).astype(np.float32)}
    fp32 = DType.F32
    sources = (Source("x", "x", fp32),)
    tap = Tap(0, "y", ("y",), "y", "y", "kernel", (1, 4, *columns), sources, fp32, fp32, 1, 1, fp32, False)
    (expected,) = Reference(path, ()).expected([tap], held, {})
    assert expected.variance is not None
    assert expected.variance.shape == expected.tensor.shape == (1, 4, *columns)
    wrong = expected.tensor * np.float32(1 + 1e-4)
    assert judge(expected.tensor, expected.tensor, expected.variance, fp32, expected.relative).used < 1
    assert judge(wrong, expected.tensor, expected.variance, fp32, expected.relative).used > 1
