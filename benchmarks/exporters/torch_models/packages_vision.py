"""Models of further packages for images and volumes, as `catalog.py` exports them: randomly initialised, small.

A package that is absent is left out: `ABSENT` names it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Tensor, ...]]
Maker = Callable[[], Made]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def found(path: str) -> Any:
    """The object `module:name`, imported when a model is made and not before."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def made(path: str, *shape: int, **options: Any) -> Maker:
    """A class by its path, for one random input."""
    return lambda: (found(path)(**options), (torch.randn(*shape),))


class Part(nn.Module):
    """What `function` makes of a model and its inputs."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *given: Tensor) -> Any:
        return self.function(self.model, *given)


def _yolo(name: str, size: int = 160, kind: str = "Detection") -> Made:
    model = found(f"ultralytics.nn.tasks:{kind}Model")(f"{name}.yaml", verbose=False)
    for each in model.modules():
        if hasattr(each, "export"):
            each.export, each.format, each.dynamic = True, "onnx", False
    return Part(model.fuse(verbose=False), lambda model, image: model(image)), (randn(1, 3, size, size),)


_YOLO = {
    **dict.fromkeys((
        "yolov3-tiny", "yolov5n", "yolov6n", "yolov8n", "yolov8n-ghost", "yolov8n-p2", "yolov9t", "yolov10n", "yolo11n",
        "yolo12n", "yolo26n"), "Detection"),
    **dict.fromkeys(("yolov8n-seg", "yolo11n-seg", "yolov9c-seg", "yolo26n-seg"), "Segmentation"),
    **dict.fromkeys(("yolov8n-pose", "yolo26n-pose"), "Pose"),
    **dict.fromkeys(("yolov8n-obb", "yolo11n-obb", "yolo26n-obb"), "OBB"),
    **dict.fromkeys(("yolov8n-cls", "yolo11n-cls"), "Classification"),
    **dict.fromkeys(("rtdetr-l", "rtdetr-resnet50"), "RTDETRDetection"),
    "yolov8n-worldv2": "World",
}  # fmt: skip


def _segmenter(kind: str, encoder: str = "resnet18", **options: Any) -> Maker:
    return lambda: (
        found(f"segmentation_models_pytorch:{kind}")(encoder, encoder_weights=None, classes=3, **options),
        (randn(1, 3, 128, 160),),
    )


SEGMENTERS: dict[str, Maker] = {
    **{name: _segmenter(name) for name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PAN",
                                           "DeepLabV3", "DeepLabV3Plus", "Segformer")},
    "Unet_scse": _segmenter("Unet", "mobilenet_v2", decoder_attention_type="scse"),
    "Unet_mit": _segmenter("Unet", "mit_b0"),
    "FPN_efficientnet": _segmenter("FPN", "efficientnet-b0"),
    "Segformer_mit": _segmenter("Segformer", "mit_b0"),
    "DPT": lambda: (
        found("segmentation_models_pytorch:DPT")("tu-vit_tiny_patch16_224", encoder_weights=None, classes=3,
                                                 dynamic_img_size=False), (randn(1, 3, 224, 224),)),
}  # fmt: skip

_M = "monai.networks.nets:"
_VOLUME = (1, 1, 32, 32, 32)
VOLUMES: dict[str, Maker] = {
    "UNet": made(_M + "UNet", *_VOLUME, spatial_dims=3, in_channels=1, out_channels=2, channels=(8, 16, 32),
                 strides=(2, 2), num_res_units=2),
    "UNet2d": made(_M + "UNet", 1, 1, 64, 64, spatial_dims=2, in_channels=1, out_channels=2, channels=(8, 16, 32),
                   strides=(2, 2), num_res_units=2, norm="batch"),
    "BasicUNet": made(_M + "BasicUNet", *_VOLUME, features=(8, 8, 16, 32, 64, 8)),
    "BasicUNetPlusPlus": made(_M + "BasicUNetPlusPlus", *_VOLUME, features=(8, 8, 16, 32, 64, 8)),
    "AttentionUnet": made(_M + "AttentionUnet", *_VOLUME, spatial_dims=3, in_channels=1, out_channels=2,
                          channels=(8, 16, 32), strides=(2, 2)),
    "DynUNet": made(_M + "DynUNet", *_VOLUME, spatial_dims=3, in_channels=1, out_channels=2,
                    kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2], filters=[8, 16, 32],
                    res_block=True),
    "UNETR": made(_M + "UNETR", *_VOLUME, in_channels=1, out_channels=2, img_size=(32, 32, 32), feature_size=8,
                  hidden_size=96, mlp_dim=128, num_heads=4),
    "SwinUNETR": made(_M + "SwinUNETR", 1, 1, 64, 64, 64, in_channels=1, out_channels=2, feature_size=12),
    "SegResNet": made(_M + "SegResNet", *_VOLUME, init_filters=8),
    "SegResNetVAE": lambda: (Part(found(_M + "SegResNetVAE")((32, 32, 32), init_filters=8).eval(),
                                  lambda model, volume: model(volume)[0]), (randn(*_VOLUME),)),
    "SegResNetDS": made(_M + "SegResNetDS", *_VOLUME, init_filters=8),
    "DenseNet121": made(_M + "DenseNet121", *_VOLUME, spatial_dims=3, in_channels=1, out_channels=3),
    "VNet": made(_M + "VNet", *_VOLUME),
    "HighResNet": made(_M + "HighResNet", *_VOLUME, spatial_dims=3),
    "ResNet": lambda: (found("monai.networks.nets:resnet10")(spatial_dims=3, n_input_channels=1), (randn(*_VOLUME),)),
    "SENet": made(_M + "SEResNet50", *_VOLUME, spatial_dims=3, in_channels=1),
    "EfficientNetBN": made(_M + "EfficientNetBN", 1, 1, 64, 64, model_name="efficientnet-b0", in_channels=1,
                           pretrained=False),
    "ViT": made(_M + "ViT", *_VOLUME, in_channels=1, img_size=(32, 32, 32), patch_size=(8, 8, 8), hidden_size=96,
                mlp_dim=128, num_layers=2, num_heads=4),
    "AHNet": made(_M + "AHNet", 1, 1, 32, 32, 32, spatial_dims=3, psp_block_num=0, upsample_mode="trilinear"),
    "QuickNAT": made(_M + "Quicknat", 1, 1, 64, 64, num_filters=8),
    "MedNeXt": made(_M + "MedNeXt", *_VOLUME, init_filters=8, encoder_expansion_ratio=(2, 2), blocks_down=(1, 1),
                    blocks_up=(1, 1), decoder_expansion_ratio=(2, 2), blocks_bottleneck=1,
                    bottleneck_expansion_ratio=2),
    "VoxelMorph": lambda: (found(_M + "VoxelMorphUNet")(
        spatial_dims=3, in_channels=2, unet_out_channels=8, channels=(8, 8, 16, 16, 16, 16), final_conv_channels=(8,)),
        (randn(*_VOLUME), randn(*_VOLUME))),
    "DiffusionUNet": lambda: (found(_M + "DiffusionModelUNet")(
        spatial_dims=2, in_channels=1, out_channels=1, channels=(16, 32), attention_levels=(False, True),
        num_res_blocks=1, num_head_channels=8, norm_num_groups=8), (randn(1, 1, 32, 32), torch.tensor([7]))),
    "AutoencoderKL": lambda: (Part(found(_M + "AutoencoderKL")(
        spatial_dims=3, in_channels=1, out_channels=1, channels=(8, 16), num_res_blocks=(1, 1), norm_num_groups=4,
        attention_levels=(False, True)), lambda model, volume: model.reconstruct(volume)), (randn(1, 1, 16, 16, 16),)),
    "Restormer": made(_M + "Restormer", 1, 1, 32, 32, dim=8, num_blocks=(1, 1, 1, 1), num_refinement_blocks=1),
}  # fmt: skip

_S = "spandrel.architectures."
_PIXELS = (1, 3, 64, 64)
RESTORERS: dict[str, Maker] = {
    "ATD": made(_S + "ATD:ATD", *_PIXELS, embed_dim=48, depths=(1, 1), num_heads=(4, 4), num_tokens=16,
        category_size=64),
    "CRAFT": made(_S + "CRAFT:CRAFT", *_PIXELS, depths=[1, 1], num_heads=[6, 6]),
    "Compact": made(_S + "Compact:Compact", *_PIXELS, num_conv=4),
    "DAT": made(_S + "DAT:DAT", *_PIXELS, embed_dim=48, depth=[2, 2], num_heads=[2, 2], split_size=[8, 16]),
    "DITN": made(_S + "DITN:DITN", *_PIXELS, ITL_blocks=1, SAL_blocks=1),
    "DRCT": made(_S + "DRCT:DRCT", *_PIXELS, embed_dim=60, depths=(1, 1), num_heads=(6, 6), upscale=2),
    "DRUNet": made(_S + "DRUNet:DRUNet", *_PIXELS, in_nc=3, out_nc=3, nc=[16, 32, 64, 64], nb=1),
    "DnCNN": made(_S + "DnCNN:DnCNN", 1, 1, 64, 64, nb=5),
    "ESRGAN": made(_S + "ESRGAN:ESRGAN", *_PIXELS, num_blocks=1),
    "FDAT": made(_S + "FDAT:FDAT", *_PIXELS, embed_dim=48, num_groups=1),
    "FFTformer": made(_S + "FFTformer:FFTformer", *_PIXELS, dim=16, num_blocks=[1, 1, 1], num_refinement_blocks=1),
    "GRL": made(_S + "GRL:GRL", *_PIXELS, embed_dim=36, depths=[2, 2], num_heads_window=[3, 3], num_heads_stripe=[3, 3],
                stripe_size=[8, 8]),
    "HAT": made(_S + "HAT:HAT", 1, 3, 64, 64, window_size=16, embed_dim=48, depths=(2, 1), num_heads=(4, 4),
        upsampler="pixelshuffle",
                upscale=2),
    "HVICIDNet": made(_S + "HVICIDNet:HVICIDNet", *_PIXELS),
    "IPT": made(_S + "IPT:IPT", 1, 3, 48, 48, n_feats=16, num_heads=4, num_layers=1),
    "KBNet_s": made(_S + "KBNet:KBNet_s", *_PIXELS, width=16, middle_blk_num=1, enc_blk_nums=[1], dec_blk_nums=[1]),
    "LaMa": lambda: (found(_S + "LaMa:LaMa")(in_nc=4), (torch.rand(1, 3, 64, 64), torch.rand(1, 1, 64, 64))),
    "MMRealSR": made(_S + "MMRealSR:MMRealSR", *_PIXELS, num_in_ch=3, num_out_ch=3, num_block=1, num_feat=32),
    "MixDehazeNet": made(_S + "MixDehazeNet:MixDehazeNet", *_PIXELS),
    "MoESR": made(_S + "MoESR:MoESR", *_PIXELS, n_blocks=2, n_block=1),
    "MoSR": made(_S + "MoSR:MoSR", *_PIXELS, n_block=2),
    "NAFNet": made(_S + "NAFNet:NAFNet", *_PIXELS, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]),
    "OmniSR": made(_S + "OmniSR:OmniSR", *_PIXELS),
    "PLKSR": made(_S + "PLKSR:PLKSR", *_PIXELS, n_blocks=2),
    "RealPLKSR": made(_S + "PLKSR:RealPLKSR", *_PIXELS, n_blocks=2, dysample=True),
    "RCAN": made(_S + "RCAN:RCAN", *_PIXELS, n_resgroups=1, n_resblocks=2),
    "RGT": made(_S + "RGT:RGT", *_PIXELS, embed_dim=48, depth=[2, 2], num_heads=[2, 2], split_size=[8, 16]),
    "RealCUGAN": made(_S + "RealCUGAN:UpCunet2x", *_PIXELS),
    "RestoreFormer": lambda: (Part(found(_S + "RestoreFormer:RestoreFormer")(
        ch=32, ch_mult=(1, 2, 2), num_res_blocks=1, resolution=64, z_channels=64, embed_dim=64, n_embed=64,
        head_size=4), lambda model, image: model(image)[0]), (randn(*_PIXELS),)),
    "RetinexFormer": made(_S + "RetinexFormer:RetinexFormer", *_PIXELS, stage=1),
    "SAFMN": made(_S + "SAFMN:SAFMN", *_PIXELS, dim=36, n_blocks=2),
    "SCUNet": made(_S + "SCUNet:SCUNet", *_PIXELS, config=[2, 2, 2, 2, 2, 2, 2], dim=64),
    "SPAN": made(_S + "SPAN:SPAN", *_PIXELS, num_in_ch=3, num_out_ch=3),
    "SeemoRe": made(_S + "SeemoRe:SeemoRe", *_PIXELS, num_layers=2, num_experts=3),
    "SwiftSRGAN": made(_S + "SwiftSRGAN:SwiftSRGAN", *_PIXELS, num_blocks=2),
    "Swin2SR": made(_S + "Swin2SR:Swin2SR", 1, 3, 64, 64, window_size=8, embed_dim=48, depths=[2, 1], num_heads=[4, 4],
                    upsampler="pixelshuffledirect", upscale=2),
    "SwinIR": made(_S + "SwinIR:SwinIR", 1, 3, 50, 61, window_size=8, embed_dim=48, depths=[2, 1], num_heads=[4, 4],
                   upsampler="nearest+conv", upscale=4),
    "Uformer": made(_S + "Uformer:Uformer", 1, 3, 128, 128, img_size=128, embed_dim=16, depths=[2, 1, 1, 1, 2, 1, 1,
        1, 2],
                    modulator=True),
}  # fmt: skip


PACKAGES: dict[str, tuple[str, dict[str, Maker]]] = {
    "ultralytics": ("ultralytics", {
        name.replace(".", "_"): (lambda name=name, kind=kind: _yolo(name, 64 if kind == "Classification" else 160,
            kind))
        for name, kind in _YOLO.items()
    }),
    "smp": ("segmentation_models_pytorch", SEGMENTERS),
    "monai": ("monai", VOLUMES),
    "spandrel": ("spandrel", RESTORERS),
}  # fmt: skip


ONE_FORM = {
    "spandrel.ATD": "dynamo18",
    "spandrel.IPT": "dynamo18",
    "spandrel.FFTformer": "dynamo18",
    "monai.VoxelMorph": "ts17",
}
"""Those that the other exporter does not export, or not as ONNX defines it."""
