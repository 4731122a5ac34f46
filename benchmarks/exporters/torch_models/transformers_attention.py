"""Kinds of transformers that no other table has: decoders and encoders above all, and others with options that change
their attention."""

from __future__ import annotations

import torch
from torch import randint

from benchmarks.exporters.torch_models.transformers_shrunk import Inputs, Kind, image, of, pair, words

_FORM = "dynamo18"


def _tokens() -> Inputs:
    return {"input_ids": randint(3, 120, (1, 21))}


def _boxed() -> Inputs:
    return words() | {"bbox": torch.rand(1, 16, 4)}


_DECODERS = {
    "NanoChat": ("NanoChat", {}), "Ernie45": ("Ernie4_5", {}), "GraniteSWA": ("GraniteSWA", {}),
    "Jais2": ("Jais2", {}), "CohereNormed": ("Cohere", {"use_qk_norm": True}),
    "StableLmNormed": ("StableLm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "PhiNormed": ("Phi", {"qk_layernorm": True}), "BigCodeHeads": ("GPTBigCode", {"multi_query": False}),
    "FalconOneKey": ("Falcon", {"multi_query": True, "new_decoder_architecture": False}),
    "FalconGrouped": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "FalconSlopes": ("Falcon", {"alibi": True}),
    "LlamaYarn": ("Llama", {"rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32,
    }}),
}  # fmt: skip
_ENCODERS = (
    "AltCLIPText", "BertGenerationEncoder", "Canine", "ClapText", "Gte", "MetaClip2Text", "Ultrabert", "XCLIPText",
    "Siglip2Text", "VideoPrismText",
)  # fmt: skip

KINDS: dict[str, Kind] = {
    **{name: of(f"{kind}ForCausalLM", changed, _tokens, "logits") for name, (kind, changed) in _DECODERS.items()},
    **{
        name: of(name if name.endswith("Encoder") else f"{name}Model", {}, words, "last_hidden_state")
        for name in _ENCODERS
    },
    "DPRContext": of("DPRContextEncoder", {}, words, "pooler_output"),
    "DebertaV2Convolved": of("DebertaV2Model", {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "conv_kernel_size": 3, "position_buckets": 8,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
    }, words, "last_hidden_state"),
    "LongT5Whole": of("LongT5ForConditionalGeneration", {"encoder_attention_type": "local", "local_radius": 5}, pair,
        "logits"),
    "SwitchWhole": of("SwitchTransformersForConditionalGeneration", {}, pair, "logits"),
    "NllbMoeWhole": of("NllbMoeForConditionalGeneration", {}, pair, "logits"),
    "UdopEncoder": of("UdopEncoderModel", {}, _boxed, "last_hidden_state"),
    "AltCLIPVision": of("AltCLIPVisionModel", {"image_size": 64, "patch_size": 16}, image(), "last_hidden_state"),
}  # fmt: skip
ONE_FORM = dict.fromkeys(KINDS, _FORM)
"""Torch-script has no form of what masks of most are made with."""
