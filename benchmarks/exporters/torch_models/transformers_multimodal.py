"""Models of transformers that see and read, hear, and speak, whole or in part, that no other table has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import Inputs, Kind, T, image, of, pair, small, words

_IMAGE = 5
"""The token in whose places an image's rows are put."""
_QWEN = {
    "depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}  # fmt: skip
_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}


def _clip(**changed: Any) -> Any:
    return small(T.CLIPVisionConfig, image_size=56, patch_size=14, **changed)


def _siglip(**changed: Any) -> Any:
    return small(T.SiglipVisionConfig, image_size=56, patch_size=14, **changed)


def _llama(**changed: Any) -> Any:
    return small(T.LlamaConfig, **changed)


def _tokens(length: int = 24, count: int = 16) -> torch.Tensor:
    """Words around places of an image."""
    found = randint(10, 90, (1, length))
    found[:, 2 : 2 + count] = _IMAGE
    return found


def _seen(count: int = 16, size: int = 56) -> Callable[[], Inputs]:
    return lambda: {
        "input_ids": _tokens(24, count), "pixel_values": randn(1, 3, size, size),
        "attention_mask": torch.ones(1, 24, dtype=torch.int64),
    }  # fmt: skip


def _grid(width: int) -> Callable[[], Inputs]:
    """An image of four by four patches, as Qwen's towers take it."""
    return lambda: {
        "input_ids": _tokens(24, 4), "pixel_values": randn(16, width), "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "attention_mask": torch.ones(1, 24, dtype=torch.int64),
        "mm_token_type_ids": (_tokens(24, 4) == _IMAGE).long(),
    }  # fmt: skip


def _sound() -> Inputs:
    return {"input_values": randn(1, 8000)}


TALKS: dict[str, Kind] = {
    "Llava": of("LlavaForConditionalGeneration", lambda: T.LlavaConfig(vision_config=_clip(), text_config=_llama(),
        image_token_index=_IMAGE), _seen(), "logits"),
    "PaliGemma": of("PaliGemmaForConditionalGeneration", lambda: T.PaliGemmaConfig(vision_config=_siglip(),
        text_config=small(T.GemmaConfig), image_token_index=_IMAGE, projection_dim=64, hidden_size=64), _seen(),
        "logits"),
    "VipLlava": of("VipLlavaForConditionalGeneration", lambda: T.VipLlavaConfig(vision_config=_clip(),
        text_config=_llama(), image_token_index=_IMAGE, vision_feature_layers=[-1, -2]), _seen(), "logits"),
    "Blip2": of("Blip2ForConditionalGeneration", lambda: T.Blip2Config(vision_config=small(T.Blip2VisionConfig,
        image_size=56, patch_size=14), qformer_config=small(T.Blip2QFormerConfig, encoder_hidden_size=64),
        text_config=small(T.OPTConfig, num_hidden_layers=2), num_query_tokens=8, image_token_index=_IMAGE), _seen(8),
        "logits"),
    "InstructBlip": of("InstructBlipForConditionalGeneration",
        lambda: T.InstructBlipConfig(vision_config=small(T.InstructBlipVisionConfig, image_size=56, patch_size=14),
        qformer_config=small(T.InstructBlipQFormerConfig, encoder_hidden_size=64), text_config=small(T.OPTConfig),
        num_query_tokens=8, image_token_index=_IMAGE), lambda: _seen(8)() | {"qformer_input_ids": randint(3, 90, (1,
        6))}, "logits"),
    "Florence2": of("Florence2ForConditionalGeneration",
        lambda: T.Florence2Config(vision_config=T.Florence2VisionConfig(embed_dim=[16, 32, 48, 64], depths=[1, 1, 1,
        1], num_heads=[2, 2, 4, 4], num_groups=[2, 2, 4, 4], window_size=4, projection_dim=64),
        text_config=small(T.BartConfig), image_token_id=_IMAGE), lambda: {"input_ids": _tokens(24, 5),
        "pixel_values": randn(1, 3, 64, 64), "attention_mask": torch.ones(1, 24, dtype=torch.int64),
        "decoder_input_ids": randint(3, 90, (1, 6))}, "logits"),
    "Idefics2": of("Idefics2ForConditionalGeneration",
        lambda: T.Idefics2Config(vision_config=small(T.Idefics2VisionConfig, image_size=56, patch_size=14),
        text_config=small(T.MistralConfig), perceiver_config={"resampler_n_latents": 4, "resampler_depth": 1,
        "resampler_n_heads": 4, "resampler_head_dim": 16, "num_key_value_heads": 2}, image_token_id=_IMAGE),
        lambda: {"input_ids": _tokens(24, 4), "pixel_values": randn(1, 1, 3, 56, 56),
        "pixel_attention_mask": torch.ones(1, 1, 56, 56, dtype=torch.bool), "attention_mask": torch.ones(1, 24,
        dtype=torch.int64)}, "logits"),
    "Idefics3": of("Idefics3ForConditionalGeneration",
        lambda: T.Idefics3Config(vision_config=small(T.Idefics3VisionConfig, image_size=56, patch_size=14),
        text_config=_llama(), scale_factor=2, image_token_id=_IMAGE), lambda: {"input_ids": _tokens(24, 4),
        "pixel_values": randn(1, 1, 3, 56, 56), "attention_mask": torch.ones(1, 24, dtype=torch.int64)}, "logits"),
    "SmolVLM": of("SmolVLMForConditionalGeneration",
        lambda: T.SmolVLMConfig(vision_config=small(T.SmolVLMVisionConfig, image_size=56, patch_size=14),
        text_config=_llama(), scale_factor=2, image_token_id=_IMAGE), lambda: {"input_ids": _tokens(24, 4),
        "pixel_values": randn(1, 1, 3, 56, 56), "pixel_attention_mask": torch.ones(1, 1, 56, 56, dtype=torch.bool),
        "attention_mask": torch.ones(1, 24, dtype=torch.int64)}, "logits"),
    "Qwen2_5_VL": of("Qwen2_5_VLForConditionalGeneration", lambda: T.Qwen2_5_VLConfig(vision_config={"depth": 2,
        "hidden_size": 64, "num_heads": 4, "intermediate_size": 96, "out_hidden_size": 64,
        "fullatt_block_indexes": [1], "window_size": 28 * 2}, text_config=small(T.Qwen2_5_VLTextConfig,
        rope_parameters=_ROPE).to_dict(), image_token_id=_IMAGE, vision_start_token_id=6, video_token_id=7,
        vision_end_token_id=8), _grid(1176), "logits"),
    "InternVL": of("InternVLForConditionalGeneration",
        lambda: T.InternVLConfig(vision_config=small(T.InternVLVisionConfig, image_size=[56, 56], patch_size=[14,
        14]), text_config=small(T.Qwen2Config), image_token_id=_IMAGE, downsample_ratio=0.5), _seen(4), "logits"),
    "Gemma3": of("Gemma3ForConditionalGeneration",
        lambda: T.Gemma3Config(vision_config=_siglip(vision_use_head=False), text_config=small(T.Gemma3TextConfig),
        mm_tokens_per_image=4, image_token_index=_IMAGE, boi_token_index=6, eoi_token_index=7),
        lambda: _seen(4)() | {"token_type_ids": (_tokens(24, 4) == _IMAGE).long()}, "logits"),
    "Mistral3": of("Mistral3ForConditionalGeneration",
        lambda: T.Mistral3Config(vision_config=small(T.PixtralVisionConfig, image_size=56, patch_size=14),
        text_config=small(T.MistralConfig), image_token_index=_IMAGE),
        lambda: _seen(4)() | {"image_sizes": torch.tensor([[56, 56]])}, "logits"),
    "GotOcr2": of("GotOcr2ForConditionalGeneration",
        lambda: T.GotOcr2Config(vision_config=small(T.GotOcr2VisionConfig, image_size=128, patch_size=16,
        output_channels=32, global_attn_indexes=[1], window_size=4, mlp_dim=64), text_config=small(T.Qwen2Config),
        image_token_index=_IMAGE), _seen(4, 128), "logits"),
    "AyaVision": of("AyaVisionForConditionalGeneration", lambda: T.AyaVisionConfig(vision_config=_siglip(),
        text_config=small(T.Cohere2Config), downsample_factor=2, image_token_index=_IMAGE), _seen(4), "logits"),
    "Mllama": of("MllamaForConditionalGeneration", lambda: T.MllamaConfig(vision_config={"hidden_size": 64,
        "num_hidden_layers": 2, "num_global_layers": 1, "attention_heads": 4, "intermediate_size": 96,
        "vision_output_dim": 192, "image_size": 56, "patch_size": 14, "intermediate_layers_indices": [0, 1],
        "supported_aspect_ratios": [[1, 1]], "max_num_tiles": 1}, text_config={"vocab_size": 128, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "cross_attention_layers": [1], "pad_token_id": 0, "rope_parameters": {"rope_type": "default",
        "rope_theta": 10000.0}}, image_token_index=_IMAGE), lambda: {"input_ids": _tokens(16, 1),
        "pixel_values": randn(1, 1, 1, 3, 56, 56), "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.int64),
        "aspect_ratio_mask": torch.ones(1, 1, 1, dtype=torch.int64), "attention_mask": torch.ones(1, 16,
        dtype=torch.int64), "cross_attention_mask": torch.ones(1, 16, 1, 1, dtype=torch.int64)}, "logits"),
    "Kosmos2": of("Kosmos2ForConditionalGeneration", lambda: T.Kosmos2Config(vision_config={"hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56,
        "patch_size": 14}, text_config={"vocab_size": 128, "embed_dim": 64, "layers": 2, "ffn_dim": 96,
        "attention_heads": 4}, latent_query_num=4), lambda: {"pixel_values": randn(1, 3, 56, 56),
        "input_ids": randint(3, 90, (1, 16)), "image_embeds_position_mask": (torch.arange(16)[None] // 4 == 0).long(),
        "attention_mask": torch.ones(1, 16, dtype=torch.int64)}, "logits"),
    "Git": of("GitForCausalLM", lambda: small(T.GitConfig, vision_config=_clip().to_dict()),
        lambda: words() | {"pixel_values": randn(1, 3, 56, 56)}, "logits"),
    "Blip": of("BlipForConditionalGeneration", lambda: T.BlipConfig(vision_config={"hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56,
        "patch_size": 14}, text_config={"vocab_size": 128, "hidden_size": 64, "encoder_hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "bos_token_id": 1,
        "sep_token_id": 2}), lambda: words() | {"pixel_values": randn(1, 3, 56, 56)}, "logits"),
    "Lxmert": of("LxmertModel", {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 32},
        lambda: words() | {"visual_feats": randn(1, 6, 32), "visual_pos": torch.rand(1, 6, 4)}, ("language_output",
        "vision_output")),
    "VisualBert": of("VisualBertModel", {"visual_embedding_dim": 32}, lambda: words() | {"visual_embeds": randn(1, 6,
        32), "visual_attention_mask": torch.ones(1, 6)}, "last_hidden_state"),
    "BridgeTower": of("BridgeTowerModel", lambda: T.BridgeTowerConfig(hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, vision_config={"hidden_size": 64, "num_hidden_layers": 2,
        "image_size": 64, "patch_size": 16}, text_config={"vocab_size": 128, "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}),
        lambda: words() | {"pixel_values": randn(1, 3, 64, 64), "pixel_mask": torch.ones(1, 64, 64, dtype=torch.int64)},
        ("text_features", "image_features")),
    "FlavaImage": of("FlavaImageModel", {"image_size": 64, "patch_size": 16}, image(64), "last_hidden_state"),
    "Siglip2": of("Siglip2Model", lambda: T.Siglip2Config(vision_config=small(T.Siglip2VisionConfig, num_patches=16,
        patch_size=16).to_dict(), text_config=small(T.Siglip2TextConfig).to_dict()), lambda: {"input_ids": randint(3,
        90, (1, 16)), "pixel_values": randn(1, 16, 768), "pixel_attention_mask": torch.ones(1, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]])}, ("logits_per_image",)),
    "XCLIP": of("XCLIPModel", lambda: T.XCLIPConfig(vision_config={"hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "num_frames": 4,
        "mit_hidden_size": 32, "mit_intermediate_size": 64, "mit_num_hidden_layers": 1, "mit_num_attention_heads": 2},
        text_config={"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96}, projection_dim=32, prompt_num_attention_heads=2, prompt_layers=1),
        lambda: words() | {"pixel_values": randn(1, 4, 3, 56, 56)}, ("logits_per_video",)),
    "ColQwen2": of("ColQwen2ForRetrieval", lambda: T.ColQwen2Config(vlm_config=T.Qwen2VLConfig(vision_config=_QWEN,
        text_config=small(T.Qwen2VLTextConfig, rope_parameters=_ROPE).to_dict(), image_token_id=_IMAGE,
        vision_start_token_id=6, video_token_id=7, vision_end_token_id=8)), words, ("embeddings",)),
    "SpeechT5": of("SpeechT5ForSpeechToText", {"vocab_size": 81, "encoder_layers": 2},
        lambda: {"input_values": randn(1, 8000), "decoder_input_ids": randint(3, 80, (1, 6))}, "logits"),
    "ClapAudio": of("ClapAudioModel", {"hidden_size": 64, "patch_embeds_hidden_size": 16, "depths": [1, 1, 1],
        "num_attention_heads": [1, 2, 2], "num_hidden_layers": 3, "spec_size": 64, "num_mel_bins": 16,
        "window_size": 4, "patch_size": 4, "patch_stride": [4, 4], "enable_fusion": False},
        lambda: {"input_features": randn(1, 1, 256, 16)}, "last_hidden_state"),
    "Musicgen": of("MusicgenForCausalLM", lambda: small(T.MusicgenDecoderConfig, num_codebooks=4, vocab_size=64,
        pad_token_id=63, bos_token_id=63), lambda: {"input_ids": randint(0, 60, (4, 12)),
        "encoder_hidden_states": randn(1, 7, 64)}, "logits"),
    "SeamlessM4T": of("SeamlessM4TForSpeechToText", {"speech_encoder_layers": 2, "speech_encoder_attention_heads": 4,
        "speech_encoder_intermediate_size": 96, "encoder_layers": 2, "feature_projection_input_dim": 32,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "adaptor_kernel_size": 4,
        "adaptor_stride": 4, "num_adapter_layers": 1}, lambda: {"input_features": randn(1, 40, 32),
        "attention_mask": torch.ones(1, 40, dtype=torch.int64), "decoder_input_ids": randint(3, 90, (1, 6))},
        "logits"),
    "SeamlessM4TTexts": of("SeamlessM4TForTextToText", {"speech_encoder_layers": 1}, pair, "logits"),
    "Lasr": of("LasrForCTC", lambda: T.LasrCTCConfig(vocab_size=32, encoder_config={"hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "subsampling_conv_channels": 16,
        "num_mel_bins": 32}, pad_token_id=31), lambda: {"input_features": randn(1, 80, 32),
        "attention_mask": torch.ones(1, 80, dtype=torch.int64)}, "logits"),
    "FastSpeech2Conformer": of("FastSpeech2ConformerModel", lambda: T.FastSpeech2ConformerConfig(hidden_size=32,
        vocab_size=78, encoder_layers=1, decoder_layers=1, encoder_linear_units=64, decoder_linear_units=64,
        speech_decoder_postnet_units=32), lambda: {"input_ids": randint(3, 70, (1, 12))}, ("spectrogram",)),
    "Qwen2AudioEncoder": of("Qwen2AudioEncoder", lambda: T.Qwen2AudioEncoderConfig(d_model=64, encoder_layers=2,
        encoder_attention_heads=4, encoder_ffn_dim=96, max_source_positions=50, num_mel_bins=32),
        lambda: {"input_features": randn(1, 32, 100)}, "last_hidden_state"),
    "UniSpeechSat": of("UniSpeechSatForSequenceClassification", {"vocab_size": 32}, _sound, "logits"),
    "Pop2Piano": of("Pop2PianoForConditionalGeneration", {}, lambda: {"inputs_embeds": randn(1, 12, 64),
        "decoder_input_ids": randint(3, 90, (1, 6))}, "logits"),
    "GraniteSpeechCTCEncoder": of("GraniteSpeechCTCEncoder", lambda: T.GraniteSpeechEncoderConfig(input_dim=32,
        num_layers=2, hidden_dim=64, num_heads=4, dim_head=16, output_dim=32, context_size=20, max_pos_emb=32,
        conv_kernel_size=7), lambda: {"hidden_states": randn(1, 50, 32)}, "last_hidden_state"),
}  # fmt: skip

ONE_FORM = {
    "Llava": "ts17",
    "PaliGemma": "ts17",
    "VipLlava": "ts17",
    "Blip2": "ts17",
    "InstructBlip": "ts17",
    "Florence2": "ts17",
    "Idefics2": "ts17",
    "Idefics3": "hf",
    "SmolVLM": "hf",
    "Qwen2_5_VL": "ts17",
    "InternVL": "ts17",
    "Gemma3": "hf",
    "Mistral3": "ts17",
    "GotOcr2": "ts17",
    "AyaVision": "hf",
    "Mllama": "ts17",
    "Kosmos2": "ts17",
    "Git": "ts17",
    "Blip": "ts17",
    "Lxmert": "ts17",
    "VisualBert": "ts17",
    "BridgeTower": "ts17",
    "FlavaImage": "ts17",
    "Siglip2": "ts17",
    "XCLIP": "ts17",
    "ColQwen2": "ts17",
    "SpeechT5": "ts17",
    "ClapAudio": "ts17",
    "Musicgen": "ts17",
    "SeamlessM4T": "ts17",
    "SeamlessM4TTexts": "ts17",
    "Lasr": "ts17",
    "FastSpeech2Conformer": "ts17",
    "Qwen2AudioEncoder": "ts17",
    "UniSpeechSat": "ts17",
    "Pop2Piano": "ts17",
    "GraniteSpeechCTCEncoder": "ts17",
}
