"""Encoders and decoders of transformers in the sizes that people deploy, some with few layers: `catalog.py` has them
small.

Each is a model and its inputs, a batch of 1. Texts go in as token ids alone, without a mask. No recipe names one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]
TOKENS, VOCABULARY = 128, 8192
"""Ids of a text, and how many different ones there are: a table of words takes no time that counts."""


class First(torch.nn.Module):
    """A model of one input by name, whose last hidden state is its output."""

    def __init__(self, model: torch.nn.Module, given: str) -> None:
        super().__init__()
        self.model, self.given = model, given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(**{self.given: x})["last_hidden_state"]
        return found


def _model(kind: str, given: str, x: torch.Tensor, model: str | None = None, **changed: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**changed)
    config.use_cache = False
    return First(getattr(transformers, model or f"{kind}Model")(config), given), (x,)


def _text(kind: str, model: str | None = None, tokens: int = TOKENS, **changed: Any) -> Made:
    ids = torch.randint(1, VOCABULARY, (1, tokens))
    return _model(kind, "input_ids", ids, model, vocab_size=VOCABULARY, **changed)


def _image(kind: str, model: str | None = None, size: int = 224, **changed: Any) -> Made:
    return _model(kind, "pixel_values", torch.randn(1, 3, size, size), model, image_size=size, **changed)


def _sound(kind: str, **changed: Any) -> Made:
    return _model(kind, "input_values", torch.randn(1, 32000), **changed)


_NO_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192}

SIZED: dict[str, Callable[[], Made]] = {
    "bert_base_2_layers": lambda: _text("Bert", num_hidden_layers=2),
    "roberta_base": lambda: _text("Roberta", **_NO_SPECIAL),
    "electra_small": lambda: _text("Electra"),
    "albert_base": lambda: _text(
        "Albert", hidden_size=768, num_attention_heads=12, intermediate_size=3072, **_NO_SPECIAL
    ),
    "mpnet_base": lambda: _text("MPNet"),
    "deberta_v2_small": lambda: _text(
        "DebertaV2", hidden_size=768, num_hidden_layers=6, num_attention_heads=12, intermediate_size=3072,
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=256, norm_rel_ebd="layer_norm",
        share_att_key=True,
    ),
    "modernbert_base": lambda: _text("ModernBert", cls_token_id=1, sep_token_id=2, **_NO_SPECIAL),
    "t5_base_encoder": lambda: _text(
        "T5", "T5EncoderModel", d_model=768, num_layers=12, num_heads=12, d_ff=3072
    ),
    "gpt2": lambda: _text("GPT2", tokens=256, bos_token_id=1, eos_token_id=2),
    "llama_1b_4_layers": lambda: _text("Llama", tokens=256, num_hidden_layers=4, **_LLAMA, **_NO_SPECIAL),
    "qwen3_600m_8_layers": lambda: _text(
        "Qwen3", tokens=256, num_hidden_layers=8, hidden_size=1024, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, intermediate_size=3072, **_NO_SPECIAL,
    ),
    "dinov2_small": lambda: _image("Dinov2", hidden_size=384, num_attention_heads=6),
    "siglip_base": lambda: _image("SiglipVision", "SiglipVisionModel", patch_size=16),
    "beit_base": lambda: _image("Beit", use_relative_position_bias=True, use_mask_token=False),
    "wav2vec2_base": lambda: _sound("Wav2Vec2"),
    "squeezebert_base": lambda: _text("SqueezeBert"),
    "xlnet_6_layers": lambda: _text(
        "XLNet", n_layer=6, d_model=768, n_head=12, d_inner=3072, bos_token_id=1, eos_token_id=2
    ),
    "mobilebert": lambda: _text("MobileBert"),
    "gemma2_4_layers": lambda: _text(
        "Gemma2", tokens=256, num_hidden_layers=4, hidden_size=1024, num_attention_heads=8, num_key_value_heads=4,
        head_dim=128, intermediate_size=4096, query_pre_attn_scalar=128, **_NO_SPECIAL,
    ),
    "bloom_6_layers": lambda: _text("Bloom", tokens=256, n_layer=6, hidden_size=1024, n_head=16),
    "hubert_base_6_layers": lambda: _sound("Hubert", num_hidden_layers=6),
    "gemma2_2b_2_layers": lambda: _text(
        "Gemma2", tokens=512, num_hidden_layers=2, hidden_size=2304, num_attention_heads=8, num_key_value_heads=4,
        head_dim=256, intermediate_size=9216, query_pre_attn_scalar=256, attn_implementation="eager", **_NO_SPECIAL,
    ),
    "mistral_4096_2_layers": lambda: _text(
        "Mistral", tokens=4096, num_hidden_layers=2, sliding_window=1024, **_LLAMA, **_NO_SPECIAL
    ),
    "bloom_560m_2_layers": lambda: _text("Bloom", tokens=256, n_layer=2, hidden_size=1024, n_head=16, **_NO_SPECIAL),
    "convbert_base_2_layers": lambda: _text("ConvBert", num_hidden_layers=2, **_NO_SPECIAL),
    "vitdet_base_4_layers": lambda: _image(
        "VitDet", size=512, num_hidden_layers=4, window_block_indices=[0, 1, 2], window_size=14,
        use_relative_position_embeddings=True,
    ),
    "wavlm_base_4_layers": lambda: _sound("WavLM", num_hidden_layers=4, apply_spec_augment=False),
}  # fmt: skip
