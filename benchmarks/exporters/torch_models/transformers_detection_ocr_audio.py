"""Detectors, depths, readers of lines, towers and voices of transformers that no other table has."""

from __future__ import annotations

from typing import Any

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import Kind, T, image, of, small, words

_HYBRID = {
    "encoder_in_channels": [64, 128, 256], "decoder_layers": 2, "d_model": 32, "encoder_hidden_dim": 32,
    "decoder_in_channels": [32, 32, 32], "decoder_attention_heads": 4, "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "feat_strides": [8, 16, 32], "num_queries": 20,
    "hidden_expansion": 1.0, "eval_size": None,
}  # fmt: skip
_TOWER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64, "patch_size": 16}
_PATCHES = {"image_size": 64, "patch_size": 16}
_BANDS = {"num_mel_bins": 32, "max_source_positions": 50}


def _net() -> Any:
    return T.HGNetV2Config(
        stem_channels=[3, 8, 16], stage_in_channels=[16, 32, 64, 128], stage_mid_channels=[8, 16, 32, 64],
        stage_out_channels=[32, 64, 128, 256], stage_num_blocks=[1, 1, 1, 1], stage_numb_of_layers=[2, 2, 2, 2],
        hidden_sizes=[32, 64, 128, 256], out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip


def _depth_pro() -> Any:
    parts = ("image_model_config", "patch_model_config", "fov_model_config")
    return T.DepthProConfig(
        patch_size=64, fusion_hidden_size=16, intermediate_hook_ids=[1, 0], intermediate_feature_dims=[16, 16],
        scaled_images_ratios=[0.5, 1.0], scaled_images_overlap_ratios=[0.0, 0.25], scaled_images_feature_dims=[16, 16],
        **{part: {"model_type": "dinov2", **_TOWER} for part in parts},
    )  # fmt: skip


def _patches() -> torch.Tensor:
    places = torch.arange(20.0)[None, :, None]
    return torch.cat([places // 5 + 1, places % 5 + 1, randn(1, 20, 48)], -1)


def _line(name: str) -> Kind:
    return of(f"{name}ForTextRecognition", lambda: getattr(T, f"{name}Config")(),
              lambda: {"pixel_values": randn(1, 3, 48, 160)}, "last_hidden_state")  # fmt: skip


KINDS: dict[str, Kind] = {
    "Owlv2": of("Owlv2ForObjectDetection", lambda: T.Owlv2Config(
        vision_config=_TOWER | {"intermediate_size": 96}, projection_dim=64,
        text_config={"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                     "intermediate_size": 96, "max_position_embeddings": 16}),
        lambda: words() | {"pixel_values": randn(1, 3, 64, 64)}, ("logits", "pred_boxes")),
    "Deimv2": of("Deimv2ForObjectDetection", lambda: T.Deimv2Config(backbone_config=_net(), **_HYBRID), image(128),
                 ("logits", "pred_boxes")),
    "DepthPro": of("DepthProForDepthEstimation", _depth_pro, image(128), "predicted_depth"),
    "Radio": of("RadioModel", {}, image(), "last_hidden_state"),
    "Sapiens2": of("Sapiens2Model", {"image_size": [64, 64], "patch_size": 16}, image(), "last_hidden_state"),
    "Pix2Struct": of("Pix2StructForConditionalGeneration", lambda: T.Pix2StructConfig(
        vision_config={"hidden_size": 64, "d_ff": 96, "d_kv": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                       "patch_embed_hidden_size": 48, "seq_len": 20},
        text_config={"hidden_size": 64, "d_ff": 96, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 128}),
        lambda: {"flattened_patches": _patches(), "attention_mask": torch.ones(1, 20),
                 "decoder_input_ids": randint(3, 90, (1, 6))}, "logits"),
    "TrOCR": of("VisionEncoderDecoderModel", lambda: T.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        small(T.DeiTConfig, **_PATCHES), small(T.TrOCRConfig)),
        lambda: {"pixel_values": randn(1, 3, 64, 64), "decoder_input_ids": randint(3, 90, (1, 6))}, "logits"),
    **{name: _line(name) for name in ("PPOCRV5ServerRec", "PPOCRV6SmallRec", "PPOCRV6TinyRec")},
    "PPOCRV5MobileDet": of("PPOCRV5MobileDetForObjectDetection", lambda: T.PPOCRV5MobileDetConfig(),
                           lambda: {"pixel_values": randn(1, 3, 96, 160)}, "last_hidden_state"),
    "BarkCoarse": of("BarkCoarseModel", lambda: T.BarkCoarseConfig(
        input_vocab_size=64, output_vocab_size=64, hidden_size=64, num_layers=2, num_heads=4, block_size=64),
        lambda: {"input_ids": randint(3, 60, (1, 16))}, "logits"),
    "ParakeetForCTC": of("ParakeetForCTC", lambda: T.ParakeetCTCConfig(vocab_size=32, pad_token_id=31, encoder_config={
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "subsampling_conv_channels": 16, "num_mel_bins": 32}),
        lambda: {"input_features": randn(1, 80, 32), "attention_mask": torch.ones(1, 80, dtype=torch.int64)}, "logits"),
    "VoxtralEncoder": of("VoxtralEncoder", lambda: small(T.VoxtralEncoderConfig, **_BANDS),
                         lambda: {"input_features": randn(1, 32, 100)}, "last_hidden_state"),
    "AudioFlamingo3Encoder": of("AudioFlamingo3Encoder", lambda: small(T.AudioFlamingo3EncoderConfig, **_BANDS),
                                lambda: {"input_features": randn(1, 32, 100),
                                         "input_features_mask": torch.ones(1, 100, dtype=torch.int64)},
                                "last_hidden_state"),
    "MusicgenMelody": of("MusicgenMelodyForCausalLM", lambda: small(
        T.MusicgenMelodyDecoderConfig, num_codebooks=4, vocab_size=64, pad_token_id=63, bos_token_id=63),
        lambda: {"input_ids": randint(0, 60, (4, 12)), "encoder_hidden_states": randn(1, 7, 64)}, "logits"),
    "BertGenerationDecoder": of("BertGenerationDecoder", {}, lambda: {"input_ids": randint(3, 90, (1, 16))}, "logits"),
    **{
        name: of(f"{name}ForCausalLM", {}, lambda: {"input_ids": randint(3, 120, (1, 16))}, "logits")
        for name in ("Apertus1p5Text", "Beam", "BigBirdPegasus", "BitNet", "Blenderbot", "BlenderbotSmall", "Dory")
    },
}  # fmt: skip

ONE_FORM = dict.fromkeys(KINDS, "ts17") | dict.fromkeys(("Apertus1p5Text", "Beam", "BitNet", "Dory"), "hf")
