"""Modules that people write and deploy themselves, as `catalog.py` exports them: randomly initialised."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.exporters.torch_models.custom_sequences import (
    Clicks,
    Commands,
    Decoder,
    Denoiser,
    Experts,
    Forecast,
    Messages,
    Recogniser,
    Selective,
    Separator,
    Speech,
    Vocoder,
    Waves,
)
from benchmarks.exporters.torch_models.custom_vision import (
    Anchors,
    Bytes,
    Codes,
    Dense,
    Flow,
    Free,
    Peaks,
    Points,
    Rays,
    Shaped,
    Steps,
    Styled,
    upscaler,
)

Made = tuple[nn.Module, tuple[Tensor, ...]]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


MODULES: dict[str, Callable[[], Made]] = {
    "crnn": lambda: (Recogniser(), (randn(1, 1, 32, 160),)),
    "deep_speech": lambda: (Speech(), (randn(1, 1, 161, 120),)),
    "conv_tasnet": lambda: (Separator(), (randn(1, 1, 3200),)),
    "demucs": lambda: (Denoiser(), (randn(1, 1, 1364),)),
    "hifi_gan": lambda: (Vocoder(), (randn(1, 80, 20),)),
    "wavenet": lambda: (Waves(), (randn(1, 1, 400),)),
    "keywords": lambda: (Commands(), (randn(1, 16000),)),
    "espcn": lambda: (upscaler(), (randn(1, 1, 48, 48),)),
    "esrgan": lambda: (Dense(), (randn(1, 3, 48, 48),)),
    "unet": lambda: (Shaped(), (randn(1, 1, 70, 90),)),
    "unet_3d": lambda: (Shaped(3), (randn(1, 1, 18, 30, 34),)),
    "yolo_v5": lambda: (Anchors(), (randn(1, 3, 128, 128),)),
    "yolo_v8": lambda: (Free(), (randn(1, 3, 128, 128),)),
    "center_net": lambda: (Peaks(), (randn(1, 3, 128, 128),)),
    "diffusion": lambda: (Steps(), (randn(1, 4, 16, 16), torch.tensor([17]), randn(1, 10, 48))),
    "style_gan": lambda: (Styled(), (randn(1, 24, 16, 16), randn(1, 32))),
    "raft": lambda: (Flow(), (randn(1, 3, 64, 96), randn(1, 3, 64, 96))),
    "dgcnn": lambda: (Points(), (randn(1, 3, 128),)),
    "graph_attention": lambda: (Messages(), (randn(1, 40, 16), torch.randint(0, 40, (1, 2, 100)))),
    "dlrm": lambda: (Clicks(), (randn(1, 13), torch.randint(0, 100, (1, 4, 3)))),
    "vq_vae": lambda: (Codes(), (randn(1, 3, 32, 32),)),
    "mamba": lambda: (Selective(), (randn(1, 12, 32),)),
    "decoder_step": lambda: (
        Decoder(), (randn(1, 1, 64), torch.tensor([[9]]), randn(1, 2, 9, 16), randn(1, 2, 9, 16))
    ),
    "experts": lambda: (Experts(), (randn(1, 10, 32),)),
    "forecast": lambda: (Forecast(), (randn(1, 96, 7),)),
    "nerf": lambda: (Rays(), (randn(1, 32, 24, 3), torch.rand(1, 32, 24))),
    "camera": lambda: (Bytes(), (torch.randint(0, 256, (1, 64, 96, 3), dtype=torch.uint8),)),
}  # fmt: skip

ONE_FORM = dict.fromkeys(("keywords", "graph_attention", "decoder_step", "forecast"), "dynamo18")
"""Those that torch-script does not export, or not as ONNX defines it."""
