"""Modules of PaddlePaddle, as paddle2onnx writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.exporters.export_frameworks import written


def paddles(folder: Path) -> None:
    os.environ["POLYGRAPHY_AUTOINSTALL_DEPS"] = "0"  # its optimiser would install what it lacks
    import paddle
    from paddle import nn

    functional = nn.functional

    class Function(nn.Layer):  # type: ignore[misc]
        def __init__(self, function: Callable[..., Any], *layers: Any) -> None:
            super().__init__()
            self.function, self.layers_of_it = function, nn.LayerList(layers)

        def forward(self, x: Any) -> Any:
            return self.function(x)

    def first(layer: Any) -> Any:
        return Function(lambda x: layer(x)[0], layer)

    vision = paddle.vision.models
    norms = (nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.InstanceNorm2D(8), nn.PReLU(8), nn.LeakyReLU(0.2))
    models: dict[str, tuple[Any, tuple[int, ...]]] = {
        "resnet18": (vision.resnet18(), (1, 3, 64, 64)), "mobilenet3": (vision.mobilenet_v3_small(), (1, 3, 64, 64)),
        "shufflenet": (vision.shufflenet_v2_x0_25(), (1, 3, 64, 64)),
        "lines": (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Swish(), nn.Linear(16, 4)), (-1, 8)),
        "lstm": (first(nn.LSTM(6, 8, direction="bidirect")), (2, 7, 6)), "gru": (first(nn.GRU(6, 8)), (2, 7, 6)),
        "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2), (1, 5, 16)),
        "norms": (nn.Sequential(*norms, nn.AdaptiveAvgPool2D(3), nn.PixelShuffle(2)), (1, 3, 12, 12)),
        "choices": (Function(lambda x: (
            paddle.topk(x, 3)[0], paddle.argsort(x), paddle.cumsum(x, 1), paddle.where(x > 0, x, -x),
            paddle.flip(x, [1]), paddle.std(x, 1), paddle.logsumexp(x, 1))), (3, 6)),
        "moves": (Function(lambda x: (
            x[:, 1:4], x[::2], paddle.tril(x), functional.pad(x[None, None], [1, 2, 0, 1], mode="reflect"),
            functional.unfold(x[None, None], 2))), (6, 6)),
    }  # fmt: skip
    for name, (model, shape) in models.items():
        paddle.seed(0)
        model.eval()
        spec = [paddle.static.InputSpec(list(shape), "float32", "x")]
        written(
            folder, "paddle2onnx", name,
            lambda path, model=model, spec=spec: paddle.onnx.export(
                model, path.removesuffix(".onnx"), input_spec=spec, opset_version=13
            ),
        )  # fmt: skip
