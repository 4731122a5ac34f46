"""Kinds of transformers that no other table has: linear attention in chunks, state spaces beside attention, multi-head
latent attention, heads that are normalised behind their turn, and encoders of images and of sound."""

from __future__ import annotations

from typing import Any

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import Inputs, Kind, image, of

_FORM = "dynamo18"
_PATCHES = {"image_size": 64, "patch_size": 16}


def _tokens() -> Inputs:
    """As many as fill two chunks of 64, the last nine padding."""
    mask = torch.ones(1, 80, dtype=torch.int64)
    mask[:, 71:] = 0
    return {"input_ids": randint(3, 120, (1, 80)), "attention_mask": mask}


_LATENT = {"num_key_value_heads": 4}
_DECODERS: dict[str, dict[str, Any]] = {
    "GPTNeoXJapanese": {}, "HunYuanDenseV1": {"head_dim": 16}, "Ministral": {"head_dim": 16}, "MiniCPM3": _LATENT,
    "ModernBertDecoder": {}, "Olmo3": {}, "OlmoHybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "Qwen3_5": {"layer_types": ["linear_attention", "full_attention"]}, "Youtu": _LATENT,
    "Zamba2": {
        "num_hidden_layers": 3, "layer_types": ["mamba", "hybrid", "mamba"], "hybrid_layer_ids": [1],
        "attention_head_dim": 32, "attention_hidden_size": 128,
    },
}  # fmt: skip

KINDS: dict[str, Kind] = {
    **{name: of(f"{name}ForCausalLM", changed, _tokens, "logits") for name, changed in _DECODERS.items()},
    "XLSTM": of("xLSTMForCausalLM", {}, lambda: {"input_ids": randint(3, 120, (1, 32))}, "logits"),
    "ChineseCLIPVision": of("ChineseCLIPVisionModel", _PATCHES, image(), "last_hidden_state"),
    "DonutSwin": of("DonutSwinModel", {
        "image_size": 128, "patch_size": 4, "embed_dim": 16, "num_heads": [1, 2, 4, 8], "window_size": 4,
        "hidden_size": 128,
    }, image(128), "last_hidden_state"),
    "PixtralVision": of("PixtralVisionModel", _PATCHES, image(), "last_hidden_state"),
    "Sam3ViT": of("Sam3ViTModel", {"image_size": 56, "patch_size": 14, "pretrain_image_size": 56, "window_size": 2,
        "global_attn_indexes": [1]}, image(56), "last_hidden_state"),
    "SamHQVision": of("SamHQVisionModel", {**_PATCHES, "global_attn_indexes": [1], "window_size": 2,
        "output_channels": 32, "mlp_dim": 96}, image(), "last_hidden_state"),
    "NemotronAsrStreaming": of("NemotronAsrStreamingEncoder", {},
        lambda: {"input_features": randn(1, 96, 80)}, "last_hidden_state"),
}  # fmt: skip
ONE_FORM = dict.fromkeys(KINDS, _FORM)
"""Linear attention is exported by torch.export alone: elsewhere it solves a triangular system."""
