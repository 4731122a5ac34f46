"""Kinds of transformers and timm beyond those that `catalog.py` began with: whole models with their heads,
encoders together with decoders, detectors and segmenters, codecs of sound, forecasts, state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Inputs = dict[str, Tensor]

TIMM = (
    "cpubone_b0_bfrobust", "cspnext_tiny", "dm_nfnet_f0", "ecaresnet26t", "efficientnet_cc_b0_4e", "efficientvim_m1",
    "fastvit_mci0", "gcvit_xxtiny", "hieradet_small", "iformer_t", "lcnetv2_small", "legacy_xception", "lowformer_b0",
    "maxvit_rmlp_pico_rw_256", "nf_regnet_b0", "pnasnet5large", "resnetblur50", "resnetrs50", "samvit_base_patch16_224",
    "seresnext26d_32x4d", "sehalonet33ts", "tf_efficientnet_b0", "vit_little_patch16_reg4_gap_256",
    "vit_pe_core_tiny_patch16_384", "vit_srelpos_small_patch16_224", "vit_base_patch16_rope_reg1_gap_256",
    "vitamin_small_224", "xcit_nano_12_p8_224",
)  # fmt: skip

_SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
_SIDES = {
    "encoder_layers": 2, "decoder_layers": 2, "d_model": 128, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256,
}  # fmt: skip


def _words(length: int = 24) -> Inputs:
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length - 6 :] = 0
    return {"input_ids": torch.randint(3, 90, (1, length)), "attention_mask": mask}


def _causal() -> Inputs:
    return {"input_ids": torch.randint(3, 90, (1, 16))}


def _pair() -> Inputs:
    return _words() | {"decoder_input_ids": torch.randint(3, 90, (1, 10))}


def _pixels(size: int = 224) -> Inputs:
    return {"pixel_values": torch.randn(1, 3, size, size)}


def _both() -> Inputs:
    return _words(16) | _pixels()


def _video() -> Inputs:
    return {"pixel_values": torch.randn(1, 8, 3, 224, 224)}


def _sound(length: int = 8000) -> Inputs:
    return {"input_values": torch.randn(1, length)}


def _bands(length: int, count: int) -> Inputs:
    return {"input_features": torch.randn(1, length, count)}


def _series() -> Inputs:
    return {"past_values": torch.randn(1, 96, 3)}


def _resnet() -> Any:
    import transformers

    return transformers.ResNetConfig(depths=[1, 1, 1, 1], out_features=["stage2", "stage3", "stage4"])


def _detector() -> dict[str, Any]:
    return _SIDES | {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
                     "backbone_config": _resnet()}  # fmt: skip


def _hybrid_detector() -> dict[str, Any]:
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[32, 64, 128, 256], embedding_size=32, layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    return {
        "backbone_config": backbone, "encoder_in_channels": [64, 128, 256], "decoder_layers": 2, "d_model": 64,
        "encoder_hidden_dim": 64, "decoder_in_channels": [64, 64, 64], "decoder_attention_heads": 4,
        "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "feat_strides": [8, 16, 32],
        "num_queries": 50, "hidden_expansion": 1.0, "eval_size": None,
    }  # fmt: skip


_KEYS = {"num_key_value_heads": 2, "pad_token_id": 0}
_MIXED = {"num_local_experts": 4, "num_experts_per_tok": 2}
_LOGITS, _HIDDEN = ("logits",), ("last_hidden_state",)

Kind = tuple[str, Callable[[], dict[str, Any]], Callable[[], Inputs], tuple[str, ...]]


def _of(model: str, changed: dict[str, Any] | Callable[[], dict[str, Any]], given: Callable[[], Inputs],
        outputs: tuple[str, ...]) -> Kind:  # fmt: skip
    return model, changed if callable(changed) else lambda: changed, given, outputs


TRANSFORMERS: dict[str, Kind] = {
    # text
    "FNet": _of("FNetModel", _SMALL, _causal, _HIDDEN),
    "RemBert": _of("RemBertModel", _SMALL, _words, _HIDDEN),
    "XLM": _of("XLMModel", {"n_layers": 2, "emb_dim": 128, "n_heads": 4}, _words, _HIDDEN),
    "Flaubert": _of("FlaubertModel", {"n_layers": 2, "emb_dim": 128, "n_heads": 4}, _words, _HIDDEN),
    "IBert": _of("IBertModel", _SMALL, _words, _HIDDEN),
    "Esm": _of("EsmModel", {"vocab_size": 100, "pad_token_id": 1, "mask_token_id": 2, **_SMALL}, _words, _HIDDEN),
    "Yoso": _of("YosoModel", {"use_expectation": True, **_SMALL}, _words, _HIDDEN),
    "Xmod": _of("XmodModel", {"languages": ("a", "b"), "default_language": "a", **_SMALL}, _words, _HIDDEN),
    "RobertaPreLayerNorm": _of("RobertaPreLayerNormModel", _SMALL, _words, _HIDDEN),
    "BertForTokens": _of("BertForTokenClassification", _SMALL, _words, _LOGITS),
    "BertForSpans": _of("BertForQuestionAnswering", _SMALL, _words, ("start_logits", "end_logits")),
    "ElectraForMasks": _of("ElectraForMaskedLM", _SMALL, _words, _LOGITS),
    "DebertaForPairs": _of("DebertaV2ForSequenceClassification", _SMALL, _words, _LOGITS),
    "Longformer": _of("LongformerModel", {"attention_window": 8, **_SMALL}, _words, _HIDDEN),
    "Perceiver": _of("PerceiverForMaskedLM", {
        "num_latents": 16, "d_latents": 64, "d_model": 48, "num_self_attends_per_block": 2,
        "max_position_embeddings": 24, "qk_channels": 32, "v_channels": 64, "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
    }, lambda: {"inputs": torch.randint(3, 90, (1, 24))}, _LOGITS),
    # decoders
    "BioGpt": _of("BioGptForCausalLM", _SMALL, _causal, _LOGITS),
    "CTRL": _of("CTRLModel", {"n_layer": 2, "n_embd": 128, "n_head": 4, "dff": 256}, _causal, _HIDDEN),
    "OpenAIGPT": _of("OpenAIGPTModel", {"n_layer": 2, "n_embd": 128, "n_head": 4}, _causal, _HIDDEN),
    "XGLM": _of("XGLMForCausalLM", {"num_layers": 2, "d_model": 128, "attention_heads": 4, "ffn_dim": 256}, _causal,
                _LOGITS),
    "Mpt": _of("MptForCausalLM", {"d_model": 128, "n_heads": 4, "n_layers": 2}, _causal, _LOGITS),
    "Persimmon": _of("PersimmonForCausalLM", _SMALL, _causal, _LOGITS),
    "Nemotron": _of("NemotronForCausalLM", _SMALL | _KEYS, _causal, _LOGITS),
    "GPT2ForText": _of("GPT2LMHeadModel", {"n_layer": 2, "n_embd": 128, "n_head": 4}, _words, _LOGITS),
    "Mamba": _of("MambaForCausalLM", {"num_hidden_layers": 2, "hidden_size": 64}, _causal, _LOGITS),
    "Mamba2": _of("Mamba2ForCausalLM", {
        "num_hidden_layers": 2, "hidden_size": 64, "num_heads": 8, "head_dim": 16, "n_groups": 1, "chunk_size": 8,
    }, _causal, _LOGITS),
    "Rwkv": _of("RwkvModel", {"num_hidden_layers": 2, "hidden_size": 64, "attention_hidden_size": 64}, _causal,
                _HIDDEN),
    "RecurrentGemma": _of("RecurrentGemmaForCausalLM", {
        **_SMALL, "num_hidden_layers": 3, "lru_width": 128, "num_key_value_heads": 1, "attention_window_size": 16,
    }, _causal, _LOGITS),
    "Lfm2": _of("Lfm2ForCausalLM", {**_SMALL, **_KEYS, "layer_types": ["conv", "full_attention"]}, _causal, _LOGITS),
    "Cohere2": _of("Cohere2ForCausalLM", _SMALL | _KEYS, _causal, _LOGITS),
    "Glm4": _of("Glm4ForCausalLM", _SMALL | _KEYS | {"head_dim": 32}, _causal, _LOGITS),
    "Exaone4": _of("Exaone4ForCausalLM", _SMALL | _KEYS, _causal, _LOGITS),
    "Arcee": _of("ArceeForCausalLM", _SMALL | _KEYS, _causal, _LOGITS),
    "DiffLlama": _of("DiffLlamaForCausalLM", _SMALL | _KEYS, _causal, _LOGITS),
    "Mixtral": _of("MixtralForCausalLM", _SMALL | _KEYS | _MIXED, _causal, _LOGITS),
    "GptOss": _of("GptOssForCausalLM", _SMALL | _KEYS | _MIXED | {"head_dim": 32}, _causal, _LOGITS),
    "Llama4": _of("Llama4ForCausalLM", _SMALL | _KEYS | _MIXED | {
        "head_dim": 32, "intermediate_size_mlp": 256, "num_experts_per_tok": 1}, _causal, _LOGITS),
    "DeepseekV3": _of("DeepseekV3ForCausalLM", {
        **_SMALL, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16, "v_head_dim": 32, "first_k_dense_replace": 2,
    }, _causal, _LOGITS),
    # encoders together with decoders
    "T5Whole": _of("T5ForConditionalGeneration", {
        "num_layers": 2, "d_model": 128, "num_heads": 4, "d_kv": 32, "d_ff": 256}, _pair, _LOGITS),
    "BartWhole": _of("BartForConditionalGeneration", _SIDES, _pair, _LOGITS),
    "PegasusWhole": _of("PegasusForConditionalGeneration", _SIDES, _pair, _LOGITS),
    "M2M100Whole": _of("M2M100ForConditionalGeneration", _SIDES, _pair, _LOGITS),
    "WhisperWhole": _of("WhisperForConditionalGeneration", _SIDES | {"max_source_positions": 100}, lambda: {
        "input_features": torch.randn(1, 80, 200), "decoder_input_ids": torch.randint(3, 90, (1, 10))}, _LOGITS),
    "Speech2Text": _of("Speech2TextForConditionalGeneration", _SIDES, lambda: _bands(120, 80) | {
        "decoder_input_ids": torch.randint(3, 90, (1, 10))}, _LOGITS),
    # images
    "EfficientNet": _of("EfficientNetForImageClassification", {
        "hidden_dim": 320, "width_coefficient": 1.0, "depth_coefficient": 1.0}, _pixels, _LOGITS),
    "HGNetV2": _of("HGNetV2ForImageClassification", {}, _pixels, _LOGITS),
    "Levit": _of("LevitForImageClassification", {}, _pixels, _LOGITS),
    "SwiftFormer": _of("SwiftFormerForImageClassification", {"depths": [1, 1, 1, 1]}, _pixels, _LOGITS),
    "EfficientFormer": _of("EfficientFormerForImageClassification", {}, _pixels, _LOGITS),
    "TextNet": _of("TextNetForImageClassification", {}, _pixels, _LOGITS),
    "Swin2SR": _of("Swin2SRForImageSuperResolution", {"embed_dim": 48, "depths": [2], "num_heads": [4]},
                   lambda: _pixels(64), ("reconstruction",)),
    "Dinov2Registers": _of("Dinov2WithRegistersModel", _SMALL, _pixels, _HIDDEN),
    "VitDet": _of("VitDetModel", _SMALL | {
        "residual_block_indices": [1], "window_block_indices": [0], "window_size": 7}, _pixels, _HIDDEN),
    "SamVision": _of("SamVisionModel", {
        "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "output_channels": 32, "image_size": 224,
        "global_attn_indexes": [1], "mlp_dim": 128}, _pixels, _HIDDEN),
    "MgpStr": _of("MgpstrModel", {"num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4},
                  lambda: {"pixel_values": torch.randn(1, 3, 32, 128)}, _HIDDEN),
    "DepthAnything": _of("DepthAnythingForDepthEstimation", lambda: {
        "backbone_config": _backbone(), "reassemble_hidden_size": 128, "patch_size": 14,
        "neck_hidden_sizes": [16, 32, 64, 64], "fusion_hidden_size": 32, "head_in_index": -1,
    }, _pixels, ("predicted_depth",)),
    "UperNet": _of("UperNetForSemanticSegmentation", lambda: {
        "backbone_config": _convnext(), "hidden_size": 64, "auxiliary_in_channels": 96}, _pixels, _LOGITS),
    "CLIPSeg": _of("CLIPSegForImageSegmentation", {"reduce_dim": 32, "extract_layers": [1, 2, 3]}, _both, _LOGITS),
    "VideoMAE": _of("VideoMAEForVideoClassification", _SMALL | {"num_frames": 8}, _video, _LOGITS),
    "Timesformer": _of("TimesformerForVideoClassification", _SMALL | {"num_frames": 8}, _video, _LOGITS),
    "Vivit": _of("VivitForVideoClassification", _SMALL | {"num_frames": 8}, _video, _LOGITS),
    # images with text
    "CLIP": _of("CLIPModel", {}, _both, ("logits_per_image", "text_embeds")),
    "OwlViT": _of("OwlViTForObjectDetection", {}, lambda: _words(16) | _pixels(768), ("logits", "pred_boxes")),
    "GroupViT": _of("GroupViTVisionModel", {}, _pixels, _HIDDEN),
    # detectors and segmenters
    "ConditionalDetr": _of("ConditionalDetrForObjectDetection", _detector, _pixels, ("logits", "pred_boxes")),
    "DabDetr": _of("DabDetrForObjectDetection", _detector, _pixels, ("logits", "pred_boxes")),
    "DeformableDetr": _of("DeformableDetrForObjectDetection", lambda: _detector() | {"num_feature_levels": 3}, _pixels,
                          ("logits", "pred_boxes")),
    "RTDetr": _of("RTDetrForObjectDetection", _hybrid_detector, lambda: _pixels(256), ("logits", "pred_boxes")),
    "RTDetrV2": _of("RTDetrV2ForObjectDetection", _hybrid_detector, lambda: _pixels(256), ("logits", "pred_boxes")),
    "DFine": _of("DFineForObjectDetection", _hybrid_detector, lambda: _pixels(256), ("logits", "pred_boxes")),
    # sound
    "Wav2Vec2ForCTC": _of("Wav2Vec2ForCTC", _SMALL, _sound, _LOGITS),
    "Wav2Vec2Bert": _of("Wav2Vec2BertModel", _SMALL, lambda: _bands(60, 160), _HIDDEN),
    "SEWD": _of("SEWDModel", _SMALL, _sound, _HIDDEN),
    "Encodec": _of("EncodecModel", {"num_lstm_layers": 1, "num_filters": 8, "hidden_size": 32, "codebook_dim": 32},
                   lambda: {"input_values": torch.randn(1, 1, 6400)}, ("audio_values",)),
    "Dac": _of("DacModel", {"encoder_hidden_size": 16, "decoder_hidden_size": 64, "hidden_size": 256},
               lambda: {"input_values": torch.randn(1, 1, 5120)}, ("audio_values",)),
    "Mimi": _of("MimiModel", {"num_hidden_layers": 2}, lambda: {"input_values": torch.randn(1, 1, 7680)},
                ("audio_values",)),
    "Univnet": _of("UnivNetModel", {"model_hidden_channels": 16}, lambda: {
        "input_features": torch.randn(1, 20, 100), "noise_sequence": torch.randn(1, 20, 64)}, ("waveforms",)),
    "Parakeet": _of("ParakeetEncoder", {**_SMALL, "subsampling_conv_channels": 32}, lambda: _bands(120, 80), _HIDDEN),
    # series
    "PatchTST": _of("PatchTSTForPrediction", {
        "num_input_channels": 3, "context_length": 96, "prediction_length": 24, "patch_length": 16, "patch_stride": 8,
        "num_hidden_layers": 2, "d_model": 64, "num_attention_heads": 4, "ffn_dim": 128}, _series,
        ("prediction_outputs",)),
    "PatchTSMixer": _of("PatchTSMixerForPrediction", {
        "num_input_channels": 3, "context_length": 96, "prediction_length": 24, "patch_length": 16, "patch_stride": 8,
        "num_layers": 2, "d_model": 32}, _series, ("prediction_outputs",)),
}  # fmt: skip


ONE_FORM = dict.fromkeys((
    "FNet", "Lfm2", "Cohere2", "Glm4", "Exaone4", "Arcee", "DiffLlama", "Mixtral", "Llama4", "DeepseekV3",
    "WhisperWhole", "Mimi", "Dinov2Registers", "UperNet", "Univnet", "Mamba2", "PatchTST", "PatchTSMixer",
), "dynamo18")  # fmt: skip
"""Those that torch-script does not export, or not as ONNX defines it."""


def _backbone() -> Any:
    import transformers

    return transformers.Dinov2Config(
        **(_SMALL | {"num_hidden_layers": 4}),
        image_size=224,
        patch_size=14,
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False,
    )


def _convnext() -> Any:
    import transformers

    return transformers.ConvNextConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[32, 64, 96, 128], out_features=["stage1", "stage2", "stage3", "stage4"]
    )


def further(kind: Kind) -> tuple[torch.nn.Module, Inputs, tuple[str, ...]]:
    """The model, what goes in by name, and what of its result is an output."""
    import transformers

    name, changed, given, outputs = kind
    model_class = getattr(transformers, name)
    config = model_class.config_class(**changed())
    for each in (config, getattr(config, "text_config", None)):
        if hasattr(each, "use_cache"):
            each.use_cache = False
    return model_class(config), given(), outputs
