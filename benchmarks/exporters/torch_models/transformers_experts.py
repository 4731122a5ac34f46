"""Kinds of transformers that no other table has: mixtures of experts with shared ones and biased routers, series of
numbers, and towers of images of later models."""

from __future__ import annotations

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import HF, Inputs, Kind, image, of, words


def _tokens() -> Inputs:
    return words(48)


def _series() -> Inputs:
    """Values with the lags in front of them, and what is known of all times."""
    return {
        "past_values": randn(1, 27), "past_time_features": randn(1, 27, 2),
        "past_observed_mask": torch.ones(1, 27), "future_values": randn(1, 8), "future_time_features": randn(1, 8, 2),
    }  # fmt: skip


def _decisions() -> Inputs:
    return {
        "states": randn(1, 12, 7), "actions": randn(1, 12, 3), "rewards": randn(1, 12, 1),
        "returns_to_go": randn(1, 12, 1), "timesteps": randint(0, 90, (1, 12)),
        "attention_mask": torch.ones(1, 12, dtype=torch.int64),
    }  # fmt: skip


_LATENT = {"num_key_value_heads": 4}
EXPERTS: dict[str, Kind] = {
    name: of(f"{name}ForCausalLM", changed, _tokens, "logits")
    for name, changed in {
        "DeepseekV2": _LATENT | {"num_experts_per_tok": 2},
        "ExaoneMoe": {},
        "Glm4MoeLite": _LATENT,
        "GraniteMoeShared": {},
        "MiniMaxM2": {},
        "SolarOpen": {},
    }.items()
}
_LAGS = {"prediction_length": 8, "context_length": 24, "lags_sequence": [1, 2, 3], "num_time_features": 2}
OTHERS: dict[str, Kind] = {
    "TimeSeries": of("TimeSeriesTransformerModel", _LAGS, _series, "last_hidden_state"),
    "Decision": of("DecisionTransformerModel", {"state_dim": 7, "act_dim": 3, "max_ep_len": 100}, _decisions,
                   ("state_preds", "action_preds")),
    "ProphetNet": of("ProphetNetForCausalLM", {"max_position_embeddings": 128}, _tokens, "logits"),
    "InternVLVision": of("InternVLVisionModel", {"image_size": [64, 64], "patch_size": [16, 16]}, image(),
                         "last_hidden_state"),
    "HrmText": of("HrmTextForCausalLM", {}, _tokens, "logits"),
}  # fmt: skip
KINDS = EXPERTS | OTHERS
ONE_FORM = dict.fromkeys(EXPERTS, HF) | dict.fromkeys(OTHERS, "ts17")
