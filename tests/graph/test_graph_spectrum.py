"""STFT as a product with a constant matrix, against NumPy's FFT, and windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, refusals, tensor
from onnx import ModelProto

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate

WINDOW = np.hanning(16).astype(np.float32)


def transformed(x: tuple[int, ...], step: int = 5, window: Array | None = WINDOW, **attributes: object) -> ModelProto:
    constants = {"step": np.asarray(step), "length": np.asarray(16)} | ({} if window is None else {"window": window})
    inputs = f"x step {'-' if window is None else 'window'} length"
    return model([node("STFT", inputs, "y", **attributes)], [tensor("x", x)], constants=constants, opset=17)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [(), (1,), (2,)], ids=["plain", "real", "complex"])
@pytest.mark.parametrize("window", [WINDOW, None], ids=["window", "none"])
def test_is_the_spectrum_of_each_frame(
    tmp_path: Path, onesided: int, parts: tuple[int, ...], window: Array | None
) -> None:
    if onesided and parts == (2,):
        return
    x = np.random.RandomState(1).uniform(-1, 1, (2, 40, *parts)).astype(np.float32)
    graph = bound(tmp_path, transformed(x.shape, window=window, onesided=onesided), 2)
    signal = x[..., 0] + 1j * x[..., 1] if parts == (2,) else x.reshape(2, 40)
    frames = np.stack([signal[:, at : at + 16] for at in range(0, 25, 5)], 1)
    wanted = np.fft.fft(frames * (1.0 if window is None else window))[..., : 9 if onesided else 16]
    found = evaluate(graph, {"x": x})["y"]
    np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), atol=1e-5)


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (transformed((1, 9)), "shape-mismatch", "STFT 'STFT_0': a signal of 9 has no frames of 16 by steps of 5"),
        (transformed((1, 40, 2)), "unsupported-attribute",
         "STFT 'STFT_0': onesided=1 of complex numbers is not supported"),
        (transformed((1, 40), window=WINDOW[:9]), "shape-mismatch", "STFT 'STFT_0': the window [9] is not of 16"),
    ],
    ids=["short", "complex", "window"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, said)]


@pytest.mark.parametrize("axis", [1, 2, -3])
@pytest.mark.parametrize("length", [None, 5, 6, 11])
@pytest.mark.parametrize(
    ("parts", "attributes"),
    [
        (1, {}),
        (2, {}),
        (1, {"onesided": 1}),
        (2, {"inverse": 1}),
        (1, {"inverse": 1}),
        (2, {"inverse": 1, "onesided": 1}),
    ],
    ids=["real", "complex", "half", "back", "back from real", "back to real"],
)
def test_is_the_transform_along_an_axis(
    tmp_path: Path, axis: int, length: int | None, parts: int, attributes: dict[str, int]
) -> None:
    """Longer ones are of zeros behind the signal, shorter ones of its beginning."""
    x = np.random.RandomState(1).uniform(-1, 1, (2, 6, 7, parts)).astype(np.float32)
    constants = {"axis": np.asarray(axis)} | ({} if length is None else {"length": np.asarray(length)})
    nodes = [node("DFT", f"x {'-' if length is None else 'length'} axis", "y", **attributes)]
    graph = bound(tmp_path, model(nodes, [tensor("x", x.shape)], constants=constants, opset=20), 2)
    signal, along = (x[..., 0] + 1j * x[..., 1] if parts == 2 else x[..., 0]).astype(complex), axis % 4
    if attributes == {"inverse": 1, "onesided": 1}:
        wanted = np.fft.irfft(signal, length, along)[..., None]
    else:
        made = (np.fft.ifft if "inverse" in attributes else np.fft.fft)(signal, length, along)
        made = made if "onesided" not in attributes else np.fft.rfft(x[..., 0], length, along)
        wanted = np.stack([made.real, made.imag], -1)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "attributes", "code", "said"),
    [
        ((1, 9), {}, "shape-mismatch", "DFT 'DFT_0': the signal [1, 9] must have one or two parts along its last axis"),
        ((1, 9, 2), {"onesided": 1}, "unsupported-attribute",
         "DFT 'DFT_0': onesided=1 of complex numbers is not supported"),
        ((1, 9, 1), {"onesided": 1, "inverse": 1}, "unsupported-attribute",
         "DFT 'DFT_0': onesided=1 of an inverse transform of real numbers is not supported"),
        ((1, 9, 1), {"axis": 2}, "shape-mismatch", "DFT 'DFT_0': axis 2 is that of the parts"),
        ((1, 9999, 1), {}, "model-too-large",
         "DFT 'DFT_0': a transform of 9999 elements is more than a product is made of"),
    ],
    ids=["parts", "complex", "real", "axis", "long"],
)  # fmt: skip
def test_says_which_transform_it_cannot(
    tmp_path: Path, shape: tuple[int, ...], attributes: dict[str, int], code: str, said: str
) -> None:
    proto = model([node("DFT", "x", "y", **attributes)], [tensor("x", shape)], opset=17)
    assert refusals(tmp_path, proto) == [(code, said)]


@pytest.mark.parametrize(
    ("name", "wanted"), [("Hann", np.hanning(9)), ("Blackman", np.blackman(9))], ids=["hann", "blackman"]
)
def test_windows_are_constants(tmp_path: Path, name: str, wanted: Array) -> None:
    nodes = [node(f"{name}Window", "size", "w", periodic=0), node("Mul", "x w", "y")]
    graph = bound(tmp_path, model(nodes, [tensor("x", (1, 9))], constants={"size": np.asarray(9)}))
    found = evaluate(graph, {"x": np.ones((1, 9), np.float32)})["y"]
    np.testing.assert_allclose(found[0], wanted, atol=1e-6)
