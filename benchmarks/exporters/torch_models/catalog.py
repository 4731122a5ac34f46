"""The models that `export_torch.py` exports, randomly initialised: torchvision's, timm's, transformers' and those of
further packages.

Runs where these packages and torch are. Nothing is downloaded: sizes come from the architectures, or from small
configurations of them.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.exporters.torch_models import (
    custom_attention,
    custom_choices,
    custom_clips,
    custom_convolutions,
    custom_dense,
    custom_detection,
    custom_flow,
    custom_folding,
    custom_heads,
    custom_modules,
    custom_networks,
    custom_pixels,
    custom_research,
    custom_restoration,
    custom_sounds,
    packages_detection_forecasting,
    packages_text_audio,
    packages_vision,
    packages_vit_video,
    timm_names,
    torchvision_names,
    transformers_attention,
    transformers_decode_steps,
    transformers_detection_ocr_audio,
    transformers_experts,
    transformers_heads,
    transformers_hybrid,
    transformers_multimodal,
    transformers_newest,
    transformers_shrunk,
    transformers_vision,
)

Made = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]

# A torchvision that was made for another torch lacks its compiled operators, and does not import without these. No
# model here has them.
try:
    importlib.import_module("torchvision")
except RuntimeError:
    for _name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[_name]
    _OWN = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _OWN.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def image(size: int = 224) -> torch.Tensor:
    return torch.randn(1, 3, size, size)


def tokens(length: int = 32, most: int = 1000) -> torch.Tensor:
    return torch.randint(1, most, (1, length))


class Entries(torch.nn.Module):
    """A model of which single entries of the result are outputs, and whose inputs go in by name."""

    def __init__(self, model: torch.nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *given: torch.Tensor) -> Any:
        result = self.model(**dict(zip(self.inputs, given, strict=True)))
        found = tuple(result[name] for name in self.outputs)
        return found[0] if len(found) == 1 else found


def torchvision_model(name: str) -> Made:
    import torchvision

    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options)
    return model, (image(299 if name == "inception_v3" else 224),)


def segmentation_model(name: str) -> Made:
    import torchvision

    model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    (given,) = inspect.signature(model.forward).parameters
    return Entries(model, (given,), ("out",)), (image(),)


def video_model(name: str) -> Made:
    import torchvision

    size = 224 if name in ("s3d", "mvit_v1_b", "mvit_v2_s") else 112
    return torchvision.models.get_model(name, weights=None), (torch.randn(1, 3, 16, size, size),)


def timm_model(name: str) -> Made:
    import timm

    model = timm.create_model(name, pretrained=False, exportable=True)
    return model, (torch.randn(1, *model.default_cfg["input_size"]),)


_SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
_CLASSES = {
    "CLIPText": "CLIPTextModel", "T5": "T5EncoderModel", "MT5": "MT5EncoderModel", "CLIPVision": "CLIPVisionModel",
    "SiglipVision": "SiglipVisionModel", "SiglipText": "SiglipTextModel", "Gemma3Text": "Gemma3TextModel",
    "Funnel": "FunnelBaseModel", "Marian": "MarianModel", "BlipVision": "BlipVisionModel",
}  # fmt: skip


def text_model(kind: str, outputs: tuple[str, ...] = ("last_hidden_state",), **changed: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**changed)
    config.use_cache = False
    model = getattr(transformers, _CLASSES.get(kind, f"{kind}Model"))(config)
    if kind in ("Bart", "MBart", "Marian", "Pegasus"):
        model = model.encoder
    ids = tokens(most=min(1000, config.vocab_size))
    mask = torch.ones_like(ids)
    mask[:, 24:] = 0
    return Entries(model, ("input_ids", "attention_mask"), outputs), (ids, mask)


def vision_model(kind: str, size: int = 224, **changed: Any) -> Made:
    import transformers

    model = getattr(transformers, _CLASSES.get(kind, f"{kind}Model"))(getattr(transformers, f"{kind}Config")(**changed))
    return Entries(model, ("pixel_values",), ("last_hidden_state",)), (image(size),)


def dense_model(kind: str, output: str, **changed: Any) -> Made:
    """A vision model with a head: `output` of `kind` + "For..." for every image."""
    import transformers

    name = {"logits": "ForImageClassification", "predicted_depth": "ForDepthEstimation"}[output]
    model = getattr(transformers, kind + name)(getattr(transformers, f"{kind}Config")(**changed))
    return Entries(model, ("pixel_values",), (output,)), (image(),)


def segmenting_model(kind: str, **changed: Any) -> Made:
    import transformers

    model = getattr(transformers, f"{kind}ForSemanticSegmentation")(getattr(transformers, f"{kind}Config")(**changed))
    return Entries(model, ("pixel_values",), ("logits",)), (image(),)


def whisper() -> Made:
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=2, d_model=128, encoder_attention_heads=4, encoder_ffn_dim=256, decoder_attention_heads=4
    )
    model = transformers.WhisperModel(config).encoder
    return Entries(model, ("input_features",), ("last_hidden_state",)), (torch.randn(1, 80, 3000),)


def audio_model(kind: str, **changed: Any) -> Made:
    import transformers

    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**(_SMALL | changed)))
    return Entries(model, ("input_values",), ("last_hidden_state",)), (torch.randn(1, 16000),)


def spectrogram() -> Made:
    import transformers

    model = transformers.ASTModel(transformers.ASTConfig(max_length=256, **_SMALL))
    return Entries(model, ("input_values",), ("last_hidden_state",)), (torch.randn(1, 256, 128),)


def tables(kind: str) -> Made:
    """A table model of DETR's kind: boxes and classes of every query."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        use_timm_backbone=False, use_pretrained_backbone=False,
        backbone_config=transformers.ResNetConfig(out_features=["stage4"], depths=[1, 1, 1, 1]),
        backbone=None, d_model=128, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=256, decoder_ffn_dim=256,
        encoder_attention_heads=4, decoder_attention_heads=4,
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForObjectDetection")(config)
    return Entries(model, ("pixel_values",), ("logits", "pred_boxes")), (image(),)


def further_model(name: str) -> Made:
    model, given, outputs = transformers_heads.further(transformers_heads.TRANSFORMERS[name])
    return Entries(model, tuple(given), outputs), tuple(given.values())


def shrunk_model(kind: transformers_shrunk.Kind) -> Made:
    model, given, outputs = kind()
    return Entries(model, tuple(given), outputs), tuple(given.values())


_BERTS = (
    "Bert", "Albert", "Roberta", "XLMRoberta", "Camembert", "Electra", "MPNet", "DebertaV2", "Deberta", "RoFormer",
    "ConvBert", "Splinter", "LayoutLM", "Tapas", "MegatronBert", "Ernie", "Data2VecText", "Nystromformer",
)  # fmt: skip
_CAUSAL: dict[str, dict[str, Any]] = {
    "Llama": {"num_key_value_heads": 2}, "Mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "Qwen2": {"num_key_value_heads": 2}, "Gemma": {"num_key_value_heads": 1, "head_dim": 32},
    "Phi": {}, "GPTNeoX": {}, "Qwen3": {"num_key_value_heads": 2, "head_dim": 32},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 32}, "Gemma3Text": {"num_key_value_heads": 2, "head_dim": 32},
    "Phi3": {"num_key_value_heads": 2, "pad_token_id": 0}, "Olmo": {}, "Olmo2": {},
    "StableLm": {"num_key_value_heads": 4},
    "Starcoder2": {"num_key_value_heads": 2}, "SmolLM3": {"num_key_value_heads": 2, "pad_token_id": 0},
    "Granite": {}, "Cohere": {}, "Glm": {"num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0},
    "Falcon": {}, "Helium": {"num_key_value_heads": 2, "head_dim": 32},
}  # fmt: skip
_ENCODER = {"encoder_layers": 2, "d_model": 128, "encoder_attention_heads": 4, "encoder_ffn_dim": 256}
_T5 = {"num_layers": 2, "d_model": 128, "num_heads": 4, "d_kv": 32, "d_ff": 256}
_ONCE = [1, 1, 1, 1]

NAMED: dict[str, Callable[[], Made]] = {
    **{f"torchvision.{name}": (lambda name=name: torchvision_model(name)) for name in torchvision_names.SMALLEST},
    **{f"torchvision.{name}": (lambda name=name: segmentation_model(name)) for name in torchvision_names.SEGMENTATION},
    "timm.deit_tiny_patch16_224": lambda: timm_model("deit_tiny_patch16_224"),
    "timm.vit_tiny_patch16_224": lambda: timm_model("vit_tiny_patch16_224"),
    "transformers.Bert": lambda: text_model("Bert", **_SMALL),
    "transformers.DistilBert": lambda: text_model("DistilBert", n_layers=2, dim=128, n_heads=4, hidden_dim=256),
    "transformers.Albert": lambda: text_model("Albert", **_SMALL),
    "transformers.ViT": lambda: vision_model("ViT", **_SMALL),
    "transformers.DeiT": lambda: vision_model("DeiT", **_SMALL),
    "transformers.CLIPText": lambda: text_model("CLIPText", ("last_hidden_state", "pooler_output"), **_SMALL),
    "transformers.CLIPVision": lambda: vision_model("CLIPVision", **_SMALL),
    "transformers.Whisper": whisper,
    "transformers.T5": lambda: text_model("T5", **_T5),
    "transformers.Swin": lambda: vision_model("Swin", depths=_ONCE, embed_dim=48),
    "transformers.GPT2": lambda: text_model("GPT2", n_layer=2, n_embd=128, n_head=4),
    "transformers.Llama": lambda: text_model("Llama", **(_SMALL | _CAUSAL["Llama"])),
}
"""The smallest of each family that is exported in every form."""

FURTHER_PACKAGES = {
    **packages_vision.PACKAGES, **packages_text_audio.PACKAGES, **packages_vit_video.PACKAGES,
    **packages_detection_forecasting.PACKAGES, **transformers_decode_steps.PACKAGES,
}  # fmt: skip
"""Packages and models of each, by what rows call them."""
ABSENT = tuple(
    sorted({package for package, _ in FURTHER_PACKAGES.values() if importlib.util.find_spec(package) is None})
)
"""Those whose models are left out."""

_NEWER = (
    transformers_shrunk, transformers_vision, transformers_multimodal, transformers_detection_ocr_audio,
    transformers_attention, transformers_hybrid, transformers_experts, transformers_newest,
)  # fmt: skip

_NETWORKS = (
    custom_attention, custom_convolutions, custom_dense, custom_detection, custom_restoration, custom_flow,
    custom_sounds, custom_clips, custom_heads,
)  # fmt: skip

_LATER = (custom_networks, custom_pixels, custom_folding, custom_choices)

SHRUNK = {
    **transformers_shrunk.DECODERS, **transformers_shrunk.TEXTS, **transformers_vision.SIGHTS,
    **transformers_multimodal.TALKS, **transformers_detection_ocr_audio.KINDS, **transformers_attention.KINDS,
    **transformers_hybrid.KINDS, **transformers_experts.KINDS,
}  # fmt: skip

OTHERS: dict[str, Callable[[], Made]] = {
    **{
        f"transformers.{kind}": (lambda kind=kind: text_model(kind, **_SMALL))
        for kind in _BERTS if kind not in ("Bert", "Albert")
    },
    "transformers.SqueezeBert": lambda: text_model("SqueezeBert", embedding_size=128, **_SMALL),
    "transformers.MobileBert": lambda: text_model("MobileBert", num_hidden_layers=2),
    "transformers.ModernBert": lambda: text_model(
        "ModernBert", pad_token_id=0, cls_token_id=1, sep_token_id=2, **_SMALL
    ),
    "transformers.Funnel": lambda: text_model(
        "Funnel", block_sizes=[1, 1], d_model=128, n_head=4, d_head=32, d_inner=256
    ),
    "transformers.XLNet": lambda: text_model("XLNet", n_layer=2, d_model=128, n_head=4, d_inner=256),
    "transformers.BigBird": lambda: text_model("BigBird", attention_type="original_full", **_SMALL),
    "transformers.SiglipText": lambda: text_model("SiglipText", **_SMALL),
    "transformers.Bart": lambda: text_model("Bart", **_ENCODER),
    "transformers.MBart": lambda: text_model("MBart", **_ENCODER),
    "transformers.Marian": lambda: text_model("Marian", **_ENCODER),
    "transformers.MT5": lambda: text_model("MT5", **_T5),
    "transformers.OPT": lambda: text_model("OPT", ffn_dim=256, word_embed_proj_dim=128, **_SMALL),
    "transformers.Bloom": lambda: text_model("Bloom", n_layer=2, hidden_size=128, n_head=4),
    "transformers.GPTJ": lambda: text_model("GPTJ", n_layer=2, n_embd=128, n_head=4, rotary_dim=16),
    "transformers.GPTNeo": lambda: text_model(
        "GPTNeo", num_layers=2, hidden_size=128, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "transformers.GPTBigCode": lambda: text_model("GPTBigCode", n_layer=2, n_embd=128, n_head=4),
    "transformers.CodeGen": lambda: text_model("CodeGen", n_layer=2, n_embd=128, n_head=4, rotary_dim=16),
    **{
        f"transformers.{kind}": (lambda kind=kind, more=more: text_model(kind, **(_SMALL | more)))
        for kind, more in _CAUSAL.items() if kind != "Llama"
    },
    "transformers.Beit": lambda: vision_model("Beit", **_SMALL),
    "transformers.Data2VecVision": lambda: vision_model("Data2VecVision", **_SMALL),
    "transformers.Dinov2": lambda: vision_model("Dinov2", **_SMALL),
    "transformers.DINOv3ViT": lambda: vision_model("DINOv3ViT", **_SMALL),
    "transformers.SiglipVision": lambda: vision_model("SiglipVision", **_SMALL),
    "transformers.BlipVision": lambda: vision_model("BlipVision", **_SMALL),
    "transformers.IJepa": lambda: vision_model("IJepa", **_SMALL),
    "transformers.ViTMSN": lambda: vision_model("ViTMSN", **_SMALL),
    "transformers.Yolos": lambda: vision_model("Yolos", image_size=[224, 224], num_detection_tokens=10, **_SMALL),
    "transformers.Hiera": lambda: vision_model("Hiera", depths=_ONCE, embed_dim=48),
    "transformers.Swinv2": lambda: vision_model("Swinv2", depths=_ONCE, embed_dim=48),
    "transformers.ConvNext": lambda: vision_model("ConvNext", depths=_ONCE, hidden_sizes=[32, 64, 96, 128]),
    "transformers.ConvNextV2": lambda: vision_model("ConvNextV2", depths=_ONCE, hidden_sizes=[32, 64, 96, 128]),
    "transformers.ResNet": lambda: vision_model("ResNet", depths=_ONCE),
    "transformers.RegNet": lambda: vision_model("RegNet", depths=_ONCE),
    "transformers.MobileViT": lambda: vision_model("MobileViT"),
    "transformers.MobileViTV2": lambda: vision_model("MobileViTV2", width_multiplier=0.5),
    "transformers.MobileNetV1": lambda: vision_model("MobileNetV1", depth_multiplier=0.25),
    "transformers.MobileNetV2": lambda: vision_model("MobileNetV2", depth_multiplier=0.35),
    "transformers.PoolFormer": lambda: vision_model("PoolFormer", depths=_ONCE),
    "transformers.Pvt": lambda: dense_model("Pvt", "logits", depths=_ONCE),
    "transformers.PvtV2": lambda: dense_model("PvtV2", "logits", depths=_ONCE),
    "transformers.Cvt": lambda: vision_model("Cvt", depth=[1, 2, 3]),
    "transformers.FocalNet": lambda: vision_model("FocalNet", depths=_ONCE, embed_dim=48),
    "transformers.Segformer": lambda: vision_model("Segformer", depths=_ONCE),
    "transformers.SegformerHead": lambda: segmenting_model("Segformer", depths=_ONCE),
    "transformers.DPT": lambda: dense_model(
        "DPT", "predicted_depth", backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[32, 64, 96, 128],
        image_size=224, fusion_hidden_size=64, **(_SMALL | {"num_hidden_layers": 4}),
    ),
    "transformers.GLPN": lambda: dense_model("GLPN", "predicted_depth", depths=_ONCE),
    "transformers.Wav2Vec2": lambda: audio_model("Wav2Vec2"),
    "transformers.Hubert": lambda: audio_model("Hubert"),
    "transformers.WavLM": lambda: audio_model("WavLM"),
    "transformers.UniSpeech": lambda: audio_model("UniSpeech"),
    "transformers.Data2VecAudio": lambda: audio_model("Data2VecAudio"),
    "transformers.Wav2Vec2Conformer": lambda: audio_model("Wav2Vec2Conformer"),
    "transformers.SEW": lambda: audio_model("SEW", squeeze_factor=2),
    "transformers.AST": spectrogram,
    "transformers.TableTransformer": lambda: tables("TableTransformer"),
    "transformers.Detr": lambda: tables("Detr"),
    **{
        f"timm.{name}": (lambda name=name: timm_model(name))
        for name in timm_names.SMALLEST if "timm." + name not in NAMED
    },
    **{f"torchvision.{name}": (lambda name=name: video_model(name)) for name in torchvision_names.VIDEO},
    **{f"torchvision.{name}": (lambda name=name: segmentation_model(name))
       for name in torchvision_names.LARGER_SEGMENTATION},
    **{f"torchvision.{name}": (lambda name=name: torchvision_model(name)) for name in torchvision_names.LARGER},
    **{f"timm.{name}": (lambda name=name: timm_model(name)) for name in transformers_heads.TIMM},
    **{f"transformers.{name}": (lambda name=name: further_model(name)) for name in transformers_heads.TRANSFORMERS},
    **{f"transformers.{name}": (lambda kind=kind: shrunk_model(kind)) for name, kind in SHRUNK.items()},
    **{f"module.{name}": made for name, made in (custom_modules.MODULES | custom_research.MODULES).items()},
    **{
        f"{name}.{model}": made
        for name, (package, models) in FURTHER_PACKAGES.items() if package not in ABSENT
        for model, made in models.items()
    },
    **{f"module.{name}": made for each in _NETWORKS for name, made in each.MODULES.items()},
    **{f"timm.{name}": (lambda name=name: timm_model(name)) for name in timm_names.LATER},
    **{f"module.{name}": made for each in _LATER for name, made in each.MODULES.items()},
    **{
        f"transformers.{name}": (lambda kind=kind: shrunk_model(kind))
        for name, kind in transformers_newest.KINDS.items()
    },
}  # fmt: skip
"""Models that are exported in one form, the largest last but for those that came later."""

MODELS = NAMED | OTHERS

ONE_FORM = {
    "transformers.Tapas": "dynamo18", "transformers.XLNet": "ts17",
    "transformers.Cohere": "dynamo18", "transformers.MobileViTV2": "dynamo18",
    "timm.halonet26t": "dynamo18", "timm.volo_d1_224": "dynamo18", "timm.sehalonet33ts": "dynamo18",
    **{f"transformers.{name}": form for name, form in transformers_heads.ONE_FORM.items()},
    **{f"transformers.{name}": form for each in _NEWER for name, form in each.ONE_FORM.items()},
    **{f"module.{name}": form for name, form in (custom_modules.ONE_FORM | custom_research.ONE_FORM).items()},
    **{f"module.{name}": form for each in (*_NETWORKS, *_LATER)
       for name, form in getattr(each, "ONE_FORM", {}).items()},
    **packages_vision.ONE_FORM, **packages_text_audio.ONE_FORM, **packages_vit_video.ONE_FORM,
    **packages_detection_forecasting.ONE_FORM, **transformers_decode_steps.ONE_FORM,
}  # fmt: skip
"""The form of those that the exporter of the other does not take."""
