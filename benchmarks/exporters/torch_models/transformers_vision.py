"""Towers, detectors, segmenters, depths, series and documents of transformers that no other table has."""

from __future__ import annotations

from typing import Any

import torch
from torch import randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import Kind, T, image, of, small, words

_PATCHES = {"image_size": 64, "patch_size": 16}


def _swin() -> Any:
    stages = ["stage1", "stage2", "stage3", "stage4"]
    return T.SwinConfig(
        embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=4, image_size=64, out_features=stages
    )


def _dinov2(config: type, **changed: Any) -> Any:
    return small(config, image_size=56, patch_size=14, num_hidden_layers=4, out_indices=[1, 2, 3, 4],
                 reshape_hidden_states=False, **changed)  # fmt: skip


def _boxes(length: int) -> torch.Tensor:
    begin = randint(0, 400, (1, length, 2))
    return torch.cat([begin, begin + randint(1, 90, (1, length, 2))], -1)


SIGHTS: dict[str, Kind] = {
    "Aimv2Vision": of("Aimv2VisionModel", _PATCHES, image(), "last_hidden_state"),
    "DINOv3ConvNext": of("DINOv3ConvNextModel", {"hidden_sizes": [16, 32, 48, 64]}, image(), "last_hidden_state"),
    "Pixio": of("PixioModel", _PATCHES, image(), "last_hidden_state"),
    "Bit": of("BitForImageClassification", {"hidden_sizes": [32, 32, 64, 64], "embedding_size": 32, "num_groups": 8},
        image(), "logits"),
    "Siglip2Vision": of("Siglip2VisionModel", {"num_patches": 16, "patch_size": 16}, lambda: {"pixel_values": randn(1,
        16, 768), "pixel_attention_mask": torch.ones(1, 16, dtype=torch.int64), "spatial_shapes": torch.tensor([[4,
        4]])}, "last_hidden_state"),
    "VJEPA2": of("VJEPA2Model", lambda: T.VJEPA2Config(crop_size=64, frames_per_clip=4, hidden_size=48,
        num_attention_heads=4, num_hidden_layers=2, pred_hidden_size=48, pred_num_attention_heads=4,
        pred_num_hidden_layers=1, pred_num_mask_tokens=2), lambda: {"pixel_values_videos": randn(1, 4, 3, 64, 64)},
        "last_hidden_state"),
    "VideoPrismVision": of("VideoPrismVisionModel", lambda: small(T.VideoPrismVisionConfig, image_size=64,
        num_frames=4, tubelet_size=[1, 16, 16]), lambda: {"pixel_values_videos": randn(1, 4, 3, 64, 64)},
        "last_hidden_state"),
    "PPLCNet": of("PPLCNetForImageClassification", lambda: T.PPLCNetConfig(), image(), "last_hidden_state"),
    "ViTMAE": of("ViTMAEModel", _PATCHES, lambda: {"pixel_values": randn(1, 3, 64, 64), "noise": torch.rand(1, 16)},
        "last_hidden_state"),
    "MLCDVision": of("MLCDVisionModel", _PATCHES, image(), "last_hidden_state"),
    "SegGpt": of("SegGptForImageSegmentation", lambda: small(T.SegGptConfig, image_size=[64, 32], patch_size=16,
        num_hidden_layers=4, intermediate_hidden_state_indices=[1, 2, 3], merge_index=0, decoder_hidden_size=16,
        pretrain_image_size=32), lambda: {"pixel_values": randn(1, 3, 32, 32), "prompt_pixel_values": randn(1, 3, 32,
        32), "prompt_masks": randn(1, 3, 32, 32)}, "pred_masks"),
    "VitMatte": of("VitMatteForImageMatting", lambda: T.VitMatteConfig(backbone_config=small(T.VitDetConfig,
        num_channels=4, image_size=64, pretrain_image_size=64, out_features=["stage2"]), hidden_size=64,
        fusion_hidden_sizes=[32, 16, 16, 8], convstream_hidden_sizes=[8, 16, 24]), lambda: {"pixel_values": randn(1,
        4, 64, 64)}, "alphas"),
    "VitPose": of("VitPoseForPoseEstimation",
        lambda: T.VitPoseConfig(backbone_config=T.VitPoseBackboneConfig(image_size=[64, 48], patch_size=[16, 16],
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, out_features=["stage2"], num_experts=1),
        num_labels=5), lambda: {"pixel_values": randn(1, 3, 64, 48)}, "heatmaps"),
    "ImageGPT": of("ImageGPTModel", {}, lambda: {"input_ids": randint(3, 90, (1, 16))}, "last_hidden_state"),
    "Mask2Former": of("Mask2FormerForUniversalSegmentation", lambda: T.Mask2FormerConfig(backbone_config=_swin(),
        feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=2,
        decoder_layers=2, num_attention_heads=4, dim_feedforward=64, num_queries=10), image(128),
        ("class_queries_logits", "masks_queries_logits")),
    "MaskFormer": of("MaskFormerForInstanceSegmentation", lambda: T.MaskFormerConfig(backbone_config=_swin(),
        decoder_config=T.DetrConfig(encoder_layers=1, decoder_layers=2, d_model=32, encoder_ffn_dim=64,
        decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4, num_queries=10),
        fpn_feature_size=32, mask_feature_size=32), image(128), ("class_queries_logits", "masks_queries_logits")),
    "OneFormer": of("OneFormerForUniversalSegmentation", lambda: T.OneFormerConfig(backbone_config=_swin(),
        conv_dim=32, mask_dim=32, hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=2, decoder_layers=2,
        num_attention_heads=4, dim_feedforward=64, num_queries=10, text_encoder_width=32, text_encoder_num_layers=1),
        lambda: {"pixel_values": randn(1, 3, 128, 128), "task_inputs": randint(1, 400, (1, 77)).float()},
        ("class_queries_logits", "masks_queries_logits")),
    "Eomt": of("EomtForUniversalSegmentation", {"image_size": 64, "patch_size": 16, "num_hidden_layers": 4,
        "num_blocks": 2, "num_queries": 10}, image(64), ("class_queries_logits", "masks_queries_logits")),
    "EomtDinov3": of("EomtDinov3ForUniversalSegmentation", {"image_size": 64, "patch_size": 16,
        "num_hidden_layers": 4, "num_blocks": 2, "num_queries": 10}, image(64), ("class_queries_logits",
        "masks_queries_logits")),
    "Sam2Vision": of("Sam2VisionModel",
        lambda: T.Sam2VisionConfig(backbone_config=T.Sam2HieraDetConfig(hidden_size=16, image_size=[128, 128],
        blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[16, 32, 64, 128], num_attention_heads_per_stage=[1, 2, 4,
        8], window_size_per_stage=[8, 4, 4, 2], global_attention_blocks=[3],
        window_positional_embedding_background_size=[7, 7]), backbone_channel_list=[128, 64, 32, 16],
        fpn_hidden_size=32, backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]]), image(128), "last_hidden_state"),
    "Sam2": of("Sam2Model",
        lambda: T.Sam2Config(vision_config=T.Sam2VisionConfig(backbone_config=T.Sam2HieraDetConfig(hidden_size=16,
        image_size=[128, 128], blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[16, 32, 64, 128],
        num_attention_heads_per_stage=[1, 2, 4, 8], window_size_per_stage=[8, 4, 4, 2], global_attention_blocks=[3],
        window_positional_embedding_background_size=[7, 7]), backbone_channel_list=[128, 64, 32, 16],
        fpn_hidden_size=32, backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]]),
        prompt_encoder_config=T.Sam2PromptEncoderConfig(hidden_size=32, image_size=128, patch_size=16),
        mask_decoder_config=T.Sam2MaskDecoderConfig(hidden_size=32, mlp_dim=64, num_attention_heads=4,
        iou_head_hidden_dim=32)), lambda: {"pixel_values": randn(1, 3, 128, 128), "input_points": torch.rand(1, 1, 2,
        2) * 100, "input_labels": torch.ones(1, 1, 2, dtype=torch.int64)}, ("iou_scores", "pred_masks")),
    "LwDetr": of("LwDetrForObjectDetection", lambda: T.LwDetrConfig(backbone_config=small(T.LwDetrViTConfig,
        image_size=64, pretrain_image_size=64, num_windows=4, window_block_indices=[0], out_features=["stage1",
        "stage2"]), projector_scale_factors=[1.0], d_model=32, decoder_ffn_dim=64, decoder_layers=2,
        decoder_self_attention_heads=4, decoder_cross_attention_heads=4, num_queries=10, group_detr=1), image(64),
        ("logits", "pred_boxes")),
    "ZoeDepth": of("ZoeDepthForDepthEstimation", lambda: T.ZoeDepthConfig(backbone_config=small(T.BeitConfig,
        image_size=64, patch_size=16, num_hidden_layers=4, out_indices=[1, 2, 3, 4], reshape_hidden_states=False),
        neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32, bottleneck_features=32, num_attractors=[4, 4, 4,
        4], bin_embedding_dim=32, num_relative_features=16), image(64), "predicted_depth"),
    "PromptDepthAnything": of("PromptDepthAnythingForDepthEstimation",
        lambda: T.PromptDepthAnythingConfig(backbone_config=_dinov2(T.Dinov2Config), reassemble_hidden_size=64,
        patch_size=14, neck_hidden_sizes=[16, 16, 32, 32], fusion_hidden_size=16), lambda: {"pixel_values": randn(1,
        3, 56, 56), "prompt_depth": torch.rand(1, 1, 24, 32)}, "predicted_depth"),
    "TimesFmModel": of("TimesFmModelForPrediction", lambda: small(T.TimesFmConfig, patch_length=8, context_length=32,
        horizon_length=8, quantiles=[0.1, 0.5, 0.9], hidden_size=32, num_hidden_layers=2),
        lambda: {"past_values": randn(1, 32), "freq": torch.zeros(1, 1, dtype=torch.int64)}, "mean_predictions"),
    "LayoutLMv3": of("LayoutLMv3Model", {"input_size": 64, "max_2d_position_embeddings": 512, "coordinate_size": 10,
        "shape_size": 12, "hidden_size": 64, "patch_size": 16}, lambda: words() | {"bbox": _boxes(16),
        "pixel_values": randn(1, 3, 64, 64)}, "last_hidden_state"),
    "LayoutLMv3ForTokens": of("LayoutLMv3ForTokenClassification", {"input_size": 64,
        "max_2d_position_embeddings": 512, "coordinate_size": 10, "shape_size": 12, "hidden_size": 64,
        "visual_embed": False}, lambda: words() | {"bbox": _boxes(16)}, "logits"),
    "Bros": of("BrosModel", {}, lambda: words() | {"bbox": torch.rand(1, 16, 8)}, "last_hidden_state"),
    "MarkupLM": of("MarkupLMModel", {"max_depth": 4, "xpath_unit_hidden_size": 8, "tag_pad_id": 216,
        "subs_pad_id": 1001}, lambda: words() | {"xpath_tags_seq": randint(0, 200, (1, 16, 4)),
        "xpath_subs_seq": randint(0, 900, (1, 16, 4))}, "last_hidden_state"),
    "VisionEncoderDecoder": of("VisionEncoderDecoderModel",
        lambda: T.VisionEncoderDecoderConfig.from_encoder_decoder_configs(T.DonutSwinConfig(image_size=64,
        embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4), small(T.MBartConfig, add_cross_attention=True,
        is_decoder=True)), lambda: {"pixel_values": randn(1, 3, 64, 64), "decoder_input_ids": randint(3, 90, (1, 6))},
        "logits"),
    "Esmc": of("EsmcForMaskedLM", {"num_key_value_heads": 4}, words, "logits"),
}  # fmt: skip

ONE_FORM = {
    "Aimv2Vision": "ts17",
    "DINOv3ConvNext": "ts17",
    "Pixio": "ts17",
    "Bit": "ts17",
    "Siglip2Vision": "ts17",
    "VJEPA2": "ts17",
    "VideoPrismVision": "ts17",
    "PPLCNet": "ts17",
    "ViTMAE": "ts17",
    "MLCDVision": "ts17",
    "SegGpt": "ts17",
    "VitMatte": "ts17",
    "VitPose": "ts17",
    "ImageGPT": "ts17",
    "Mask2Former": "ts17",
    "MaskFormer": "ts17",
    "OneFormer": "ts17",
    "Eomt": "ts17",
    "EomtDinov3": "ts17",
    "Sam2Vision": "ts17",
    "Sam2": "ts17",
    "LwDetr": "ts17",
    "ZoeDepth": "ts17",
    "PromptDepthAnything": "ts17",
    "TimesFmModel": "ts17",
    "LayoutLMv3": "ts17",
    "LayoutLMv3ForTokens": "ts17",
    "Bros": "ts17",
    "MarkupLM": "ts17",
    "VisionEncoderDecoder": "ts17",
    "Esmc": "ts17",
}
