"""Kinds of transformers that no other table has, with heads of 64 and 37 tokens: decoders of several streams, sparse
and hybrid attention, series, layouts, speech and towers of images."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import HF, Inputs, Kind, T, image, of, small

_WIDE: dict[str, Any] = {
    "hidden_size": 128, "d_model": 128, "n_embd": 128, "dim": 128, "hidden_dim": 128, "num_attention_heads": 2,
    "n_head": 2, "n_heads": 2, "num_heads": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 192, "d_kv": 64,
}  # fmt: skip
_PATCHES = {"image_size": 64, "patch_size": 16}
_HIDDEN = "last_hidden_state"


def _tokens(length: int = 37) -> Inputs:
    """Of which the last seven are padding."""
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - 7 :] = 0
    return {"input_ids": randint(3, 90, (1, length)), "attention_mask": mask}


def _config(name: str, **changed: Any) -> Any:
    """A small configuration whose heads are as wide as deployed ones."""
    kind = getattr(T, f"{name}Config")
    fields, default = {each.name for each in dataclasses.fields(kind)}, kind()
    rows = {name: to for name, to in _WIDE.items() if name in fields and getattr(default, name, None) is not None}
    return small(kind, **(rows | changed))


def _wide(model: str, config: str, outputs: str = "logits", given: Any = _tokens, **changed: Any) -> Kind:
    return of(model, lambda: _config(config, **changed), given, outputs)


_DECODERS: dict[str, str] = {
    **{name: name for name in (
        "BailingHybrid", "DeepseekV4", "Flint", "HYV3", "HYV4", "HyperCLOVAX", "KimiLinear", "Kolibri1", "Laguna",
        "LaraMini", "Lfm3", "Mellum", "MiMoV2Flash")},
    "Inkling": "InklingText", "Qwen4Exp": "Qwen4ExpText",
}  # fmt: skip
_BY_EXPORT = ("Flint", "HyperCLOVAX", "Lfm3")
_LATENT = ("AXK1", "GlmMoeDsa")
_TEXTS = (
    "Aimv2Text", "AlignText", "Emu3Text", "FlavaText", "Glm4vText", "GlmImageText", "Molmo2Text", "MuseGlimmerText",
)  # fmt: skip
_TOWERS = ("JanusVision", "Phi4MultimodalVision", "Tipsv2Vision")


def _bands() -> Inputs:
    return {"input_features": randn(1, 32, 100)}


def _pair() -> Inputs:
    return _tokens() | {"decoder_input_ids": randint(3, 90, (1, 6))}


def _boxes() -> Inputs:
    corners = randint(0, 500, (1, 37, 2))
    return _tokens() | {"bbox": torch.cat((corners, corners + randint(1, 400, (1, 37, 2))), -1)}


_OTHERS: dict[str, Kind] = {
    "PeAudioEncoder": _wide("PeAudioEncoder", "PeAudioEncoder", _HIDDEN, lambda: {"input_values": randn(1, 1, 16000)}),
    "GlmAsrEncoder": _wide("GlmAsrEncoder", "GlmAsrEncoder", _HIDDEN, _bands, num_mel_bins=32),
    "VoxtralRealtimeEncoder": _wide(
        "VoxtralRealtimeEncoder", "VoxtralRealtimeEncoder", _HIDDEN, _bands, num_mel_bins=32),
    "Moonshine": _wide("MoonshineModel", "Moonshine", _HIDDEN, lambda: {
        "input_values": randn(1, 16000), "decoder_input_ids": randint(3, 90, (1, 6))}),
    "LasrCTC": of("LasrForCTC", lambda: T.LasrCTCConfig(
        vocab_size=32, pad_token_id=31, encoder_config=_config("LasrEncoder").to_dict()),
        lambda: {"input_features": randn(1, 100, 128)}, "logits"),
    "FunAsrNanoEncoder": _wide("FunAsrNanoEncoder", "FunAsrNanoEncoder", _HIDDEN, lambda: {
        "input_features": randn(1, 50, 560), "input_features_mask": torch.ones(1, 50, dtype=torch.int64)}),
    "TimesFm2_5": _wide("TimesFm2_5Model", "TimesFm2_5", _HIDDEN, lambda: {"past_values": randn(1, 288)},
                        num_key_value_heads=2),
    "Lilt": of("LiltModel", lambda: small(T.LiltConfig, hidden_size=192, num_attention_heads=3,
        max_2d_position_embeddings=1024), _boxes, _HIDDEN),
    "FSMT": of("FSMTModel", lambda: small(T.FSMTConfig, src_vocab_size=100, tgt_vocab_size=100, d_model=128,
        encoder_attention_heads=2, decoder_attention_heads=2), _pair, _HIDDEN),
    "T5Gemma": of("T5GemmaModel", lambda: T.T5GemmaConfig(
        encoder=_config("T5GemmaModule").to_dict(), decoder=_config("T5GemmaModule").to_dict()), _pair, _HIDDEN),
}  # fmt: skip

KINDS: dict[str, Kind] = {
    **{name: _wide(f"{name}ForCausalLM", config) for name, config in _DECODERS.items()},
    **{name: _wide(f"{name}ForCausalLM", name, num_key_value_heads=2) for name in _LATENT},
    **{name: _wide(f"{name}Model", name, _HIDDEN) for name in _TEXTS},
    **{name: _wide(f"{name}Model", name, _HIDDEN, image(), **_PATCHES) for name in _TOWERS},
    **_OTHERS,
}  # fmt: skip
ONE_FORM = {
    **dict.fromkeys(KINDS, "dynamo18"), **dict.fromkeys(("FSMT", "T5Gemma"), "ts17"),
    **{name: HF for name in (*_DECODERS, *_LATENT) if name not in _BY_EXPORT},
}  # fmt: skip
