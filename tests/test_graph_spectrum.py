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


@pytest.mark.parametrize(
    ("name", "wanted"), [("Hann", np.hanning(9)), ("Blackman", np.blackman(9))], ids=["hann", "blackman"]
)
def test_windows_are_constants(tmp_path: Path, name: str, wanted: Array) -> None:
    nodes = [node(f"{name}Window", "size", "w", periodic=0), node("Mul", "x w", "y")]
    graph = bound(tmp_path, model(nodes, [tensor("x", (1, 9))], constants={"size": np.asarray(9)}))
    found = evaluate(graph, {"x": np.ones((1, 9), np.float32)})["y"]
    np.testing.assert_allclose(found[0], wanted, atol=1e-6)
