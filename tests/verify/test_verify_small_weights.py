"""Weights that half precision holds below its normal numbers: those of channels whose scale is nearly 0, and those that
a constant was folded into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from alarm_networks import Net
from fault_table import planned_engine
from planned_engine import Executed, PlannedContext

from bolt_build.graph.ir import Array
from bolt_build.verify.layers import compare_layers
from bolt_build.verify.report import LayerReport

LOUD = 30.0
"""Networks without normalisation have large activations."""


def image_net(channels: int = 64) -> tuple[Net, Callable[..., str]]:
    """A net of images, and what adds a 1x1 convolution to it, whose filters have these factors."""
    random, net = np.random.RandomState(0), Net([2, channels, 14, 14])

    def convolved(name: str, x: str, filters: int, factors: Array | float = 1.0, channels: int = channels) -> str:
        weight = random.standard_normal((filters, channels, 1, 1)) * channels**-0.5
        weight *= np.reshape(factors, (-1, 1, 1, 1))
        return net.node("Conv", name, x, net.constant(f"{name}.w", weight), kernel_shape=[1, 1])

    return net, convolved


def loud(net: Net) -> str:
    """An activation that is large."""
    return net.node("Relu", "loud", times(net, "louder", "x", LOUD))


def times(net: Net, name: str, x: str, factor: Array | float) -> str:
    return net.node("Mul", name, x, net.constant(f"{name}.c", np.asarray(factor)))


def gated(net: Net, path: Path, convolved: Callable[..., str]) -> Path:
    """NFNet's: the scales behind a gate are part of the weights, and the last of a block's begin at 0."""
    factors = np.ones(96)
    factors[[5, 40]] = 1e-5, 2e-6
    made = convolved("made", loud(net), 96, factors)
    gate = net.node("Sigmoid", "gate", convolved("squeezed", net.node("GlobalAveragePool", "mean", made), 96, 1, 96))
    scaled = times(net, "twice", net.node("Mul", "gated", made, gate), 2.0)
    return net.saved(path, times(net, "y", scaled, 0.05), [2, 96, 14, 14])


def behind(net: Net, path: Path, convolved: Callable[..., str]) -> Path:
    """A scale a channel, as ConvNeXt and CaiT begin with."""
    made = convolved("made", loud(net), 96)
    return net.saved(path, times(net, "y", made, np.full((96, 1, 1), 1e-5)), [2, 96, 14, 14])


def in_front(net: Net, path: Path, convolved: Callable[..., str]) -> Path:
    """Large activations that are scaled for the product that reads them."""
    return net.saved(
        path, convolved("y", times(net, "scaled", loud(net), np.full((64, 1, 1), 1e-4)), 96), [2, 96, 14, 14]
    )


def normalised(net: Net, path: Path, convolved: Callable[..., str]) -> Path:
    """BatchNorm's factors of channels that training has given up."""
    made = convolved("made", loud(net), 96)
    factors = np.ones(96)
    factors[::7] = 1e-6
    arrays = {"scale": factors, "bias": np.zeros(96), "mean": np.zeros(96), "variance": np.ones(96)}
    names = [net.constant(name, array) for name, array in arrays.items()]
    return net.saved(path, net.node("BatchNormalization", "y", made, *names), [2, 96, 14, 14])


def of_rows(net: Net, path: Path, _: object) -> Path:
    """Products of matrices: the scale of queries, say, of a projection whose results are large."""
    weight = np.random.RandomState(1).standard_normal((14, 48)) / 4
    made = net.node("MatMul", "made", loud(net), net.constant("w", weight))
    return net.saved(path, net.node("Div", "y", made, net.constant("c", np.full(48, 3e4))), [2, 64, 14, 48])


def stored(net: Net, path: Path, convolved: Callable[..., str]) -> Path:
    """An engine pads 33 channels: nothing shows what it stores in front of the product."""
    curved = net.node("Tanh", "curved", convolved("made", "x", 33))
    return net.saved(path, convolved("y", times(net, "small", curved, 1e-6), 8, 1e3, 33), [2, 8, 14, 14])


NETS = {each.__name__: each for each in (gated, behind, in_front, normalised, of_rows, stored)}


def layers(path: Path, wrong: float = 0.0) -> tuple[LayerReport, ...]:
    """What verification says of an engine in half precision whose `y` is wrong by a part of itself."""
    engine = planned_engine(path, "h200", "fp16")
    step = next(step for step in engine.plan.steps if any(tensor.onnx == "y" for tensor in step.outputs))

    def changed(done: Executed) -> Array:
        return np.asarray(done.result.astype(np.float32) * (1 + wrong), done.result.dtype)

    context = PlannedContext(engine.plan, engine.planned.constants, {step.index: changed})
    return compare_layers(context, engine.reference, engine.plan, engine.inputs).layers


@pytest.mark.parametrize("kind", NETS)
def test_weights_below_the_normal_numbers_round_as_these_do(kind: str, tmp_path: Path) -> None:
    net, convolved = image_net()
    path = NETS[kind](net, tmp_path / "net.onnx", convolved)
    right = layers(path)
    assert all(layer.ok and layer.tells for layer in right)
    assert not all(layer.ok for layer in layers(path, wrong=0.3))


def test_what_weights_lose_almost_wholly_is_not_judged(tmp_path: Path) -> None:
    """Trying roundings on the model's own weights, which are no small ones, does not say that it departs."""
    net, convolved = image_net()
    made = times(net, "made", convolved("product", loud(net), 96), np.full((96, 1, 1), 1e-7))
    path = net.saved(tmp_path / "net.onnx", net.node("Tanh", "y", made), [2, 96, 14, 14])
    found = {layer.name: layer for layer in layers(path)}
    assert all(layer.ok for layer in found.values())
    assert not found["y"].tells


def test_a_single_small_constant_is_no_part_of_weights_in_fp16(tmp_path: Path) -> None:
    """Images of 16 bits are divided by 65535, say."""
    net, convolved = image_net()
    image = net.node("Relu", "image", times(net, "bright", "x", 8000.0))
    scaled = net.node("Div", "scaled", image, net.constant("c", np.float32(65535)))
    path = net.saved(tmp_path / "net.onnx", convolved("y", scaled, 96), [2, 96, 14, 14])
    assert {layer.name: layer.error < 4e-3 for layer in layers(path)}["y"]
