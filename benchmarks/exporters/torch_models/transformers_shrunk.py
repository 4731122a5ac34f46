"""Kinds of transformers that no other table has, made small by rule: decoders above all.

A configuration is its class's own, with few layers, narrow rows, few experts and a short vocabulary. Wants transformers
from 5 on, whose configurations are dataclasses.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Inputs = dict[str, Tensor]
Kind = Callable[[], tuple[nn.Module, Inputs, tuple[str, ...]]]


class _Transformers:
    """The package, imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("transformers"), name)


T = _Transformers()

_ROWS: dict[str, Any] = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "hidden_dim": 64, "word_embed_proj_dim": 64,
    "embedding_size": 64, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "n_inner": 96, "ffn_dim": 96, "d_ff": 96,
    "d_kv": 16, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "ffn_hidden_size": 96, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "moe_num_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_topk": 2, "moe_k": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "vocab_size": 128, "max_position_embeddings": 64,
    "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
    "mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_num_heads": 8, "mamba_head_dim": 16,
    "mamba_n_groups": 1, "n_groups": 1, "state_size": 8, "ssm_state_size": 8, "mamba_chunk_size": 8, "chunk_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "depths": [1, 1, 1, 1], "use_cache": False,
    "use_mamba_kernels": False,
}  # fmt: skip
"""What rows of a configuration become, where it has them."""
_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")


def small(config: type, **changed: Any) -> Any:
    """A small configuration of the class; `changed` are fields that the rule does not reach."""
    fields = {each.name for each in dataclasses.fields(config)}
    default = config()
    # where a field is None it follows from others
    rows = {
        name: value for name, value in _ROWS.items()
        if name in fields and (name in _TOKENS or getattr(default, name, None) is not None)
    }  # fmt: skip
    if "qk_rope_head_dim" in fields:
        rows.pop("head_dim", None)
    return config(**(rows | changed))


def of(
    model: str,
    config: dict[str, Any] | Callable[[], Any],
    given: Callable[[], Inputs],
    outputs: str | tuple[str, ...],
) -> Kind:
    """A class of transformers, its configuration (or what is changed in the small one), inputs and outputs by name."""

    def made() -> tuple[nn.Module, Inputs, tuple[str, ...]]:
        model_class = getattr(T, model)
        settings = small(model_class.config_class, **config) if isinstance(config, dict) else config()
        for each in (settings, getattr(settings, "text_config", None)):
            if hasattr(each, "use_cache"):
                each.use_cache = False
        return model_class(settings), given(), (outputs,) if isinstance(outputs, str) else outputs

    return made


def image(size: int = 64) -> Callable[[], Inputs]:
    return lambda: {"pixel_values": torch.randn(1, 3, size, size)}


def words(length: int = 16) -> Inputs:
    """Tokens of which the last four are padding."""
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - 4 :] = 0
    return {"input_ids": torch.randint(3, 90, (1, length)), "attention_mask": mask}


def pair() -> Inputs:
    return words() | {"decoder_input_ids": torch.randint(3, 90, (1, 6))}


def _decoder(name: str, **changed: Any) -> Kind:
    return of(f"{name}ForCausalLM", changed, lambda: {"input_ids": torch.randint(3, 120, (1, 16))}, "logits")


_CHANGED: dict[str, dict[str, Any]] = {
    "FalconH1": {"mamba_d_ssm": 128}, "Lfm2Moe": {"layer_types": ["conv", "full_attention"]},
}  # fmt: skip
_EXPERTS = (
    "Afmoe", "AriaText", "Cohere2Moe", "Ernie4_5_Moe", "FlexOlmo", "Glm4Moe", "GraniteMoe", "Jamba", "JetMoe",
    "Lfm2Moe", "MiniMax", "NemotronH", "Olmoe", "Phimoe", "Qwen2Moe", "Qwen3Moe",
)  # fmt: skip
_OTHERS = (
    "Apertus", "Bamba", "Cwm", "CpmAnt", "Doge", "FalconH1", "FalconMamba", "GraniteMoeHybrid", "Ministral3",
    "SeedOss", "VaultGemma",
)  # fmt: skip
DECODERS = {name: _decoder(name, **_CHANGED.get(name, {})) for name in (*_EXPERTS, *_OTHERS)}
"""Mixtures of experts, state spaces and others, as transformers' own exporter writes them."""

_MASKED = {
    "EuroBert": {}, "JinaEmbeddingsV3": {}, "Luke": {"entity_vocab_size": 20, "entity_emb_size": 16}, "NeoMME": {},
    "NomicBert": {}, "Mra": {"max_position_embeddings": 62, "block_per_row": 2},
    "RoCBert": {"pronunciation_vocab_size": 50, "shape_vocab_size": 50}, "XLMRobertaXL": {},
}  # fmt: skip
TEXTS = {name: of(f"{name}Model", changed, words, "last_hidden_state") for name, changed in _MASKED.items()} | {
    f"{name}Whole": of(f"{name}ForConditionalGeneration", changed, pair, "logits")
    for name, changed in {
        "Mvp": {}, "PLBart": {}, "UMT5": {}, "PegasusX": {"block_size": 8, "num_global_tokens": 4},
        "LED": {"attention_window": 8, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
    }.items()
}  # fmt: skip

HF = "hf"
"""The form of transformers' own exporter."""
ONE_FORM = dict.fromkeys(DECODERS, HF) | dict.fromkeys(TEXTS, "ts17")
