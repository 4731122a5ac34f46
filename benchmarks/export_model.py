"""Exports one randomly initialised model of torchvision, timm or transformers with torch.onnx.

Runs in an environment that has these packages and torch, which none of the project's own have (`exporters.py` says
how to make one and calls this). Nothing is downloaded: sizes come from the architectures, or from small
configurations of them.

    python benchmarks/export_model.py MODEL FORM FILE     # FORM is ts14, ts17, dynamo18 or dynamo23
    python benchmarks/export_model.py --list
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

FORMS = {"ts14": (False, 14), "ts17": (False, 17), "dynamo18": (True, 18), "dynamo23": (True, 23)}
"""Whether torch.export traces the model, and the opset."""

SEED = 1
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


def torchvision_model(name: str, size: int = 224) -> Made:
    import torchvision

    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options)
    return model, (image(size),)


def segmentation_model(name: str) -> Made:
    import torchvision

    model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return Entries(model, ("x",), ("out",)), (image(),)


def video_model(name: str) -> Made:
    import torchvision

    size = 224 if name in ("s3d", "mvit_v1_b") else 112
    return torchvision.models.get_model(name, weights=None), (torch.randn(1, 3, 16, size, size),)


def timm_model(name: str) -> Made:
    import timm

    model = timm.create_model(name, pretrained=False, exportable=True)
    return model, (torch.randn(1, *model.default_cfg["input_size"]),)


_SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}


def text_model(kind: str, outputs: tuple[str, ...] = ("last_hidden_state",), **changed: Any) -> Made:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**changed)
    config.use_cache = False
    base = {"CLIPText": "CLIPTextModel", "T5": "T5EncoderModel", "Bart": "BartModel"}.get(kind, f"{kind}Model")
    model = getattr(transformers, base)(config)
    if kind == "Bart":
        model = model.encoder
    ids = tokens(most=min(1000, config.vocab_size))
    mask = torch.ones_like(ids)
    mask[:, 24:] = 0
    return Entries(model, ("input_ids", "attention_mask"), outputs), (ids, mask)


def vision_model(kind: str, size: int = 224, **changed: Any) -> Made:
    import transformers

    base = {"CLIPVision": "CLIPVisionModel", "SiglipVision": "SiglipVisionModel"}.get(kind, f"{kind}Model")
    model = getattr(transformers, base)(getattr(transformers, f"{kind}Config")(**changed))
    return Entries(model, ("pixel_values",), ("last_hidden_state",)), (image(size),)


def whisper() -> Made:
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=2, d_model=128, encoder_attention_heads=4, encoder_ffn_dim=256, decoder_attention_heads=4
    )
    model = transformers.WhisperModel(config).encoder
    return Entries(model, ("input_features",), ("last_hidden_state",)), (torch.randn(1, 80, 3000),)


def audio_model(kind: str) -> Made:
    import transformers

    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**_SMALL))
    return Entries(model, ("input_values",), ("last_hidden_state",)), (torch.randn(1, 16000),)


_TORCHVISION = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "maxvit_t",
    "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18",
    "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11", "vit_b_32",
    "wide_resnet50_2",
)  # fmt: skip
_SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large")
_VIDEO = ("r3d_18", "mc3_18", "s3d", "mvit_v1_b")
_TIMM = (
    "bat_resnext26ts", "beit_base_patch16_224", "botnet26t_256", "cait_xxs24_224", "coat_lite_tiny",
    "coatnet_nano_rw_224", "convmixer_768_32", "convnextv2_atto", "crossvit_tiny_240", "cspresnet50", "davit_tiny",
    "deit_tiny_patch16_224", "dla34", "dpn48b", "eca_nfnet_l0", "edgenext_xx_small", "efficientformer_l1",
    "efficientnet_lite0",
    "ese_vovnet19b_dw", "eva02_tiny_patch14_224", "fastvit_t8", "focalnet_tiny_srf", "gcresnet33ts", "gernet_s",
    "ghostnet_100", "gmixer_24_224", "gmlp_s16_224", "halonet26t", "hardcorenas_a", "hgnet_tiny", "hiera_tiny_224",
    "hrnet_w18_small", "inception_v4", "lambda_resnet26t", "levit_128s", "mixer_s32_224", "mobilenetv4_conv_small",
    "mobileone_s0", "mobilevit_xxs", "mobilevitv2_050", "nest_tiny", "pit_ti_224", "poolformer_s12", "pvt_v2_b0",
    "regnetz_b16", "repghostnet_050", "repvgg_a0", "repvit_m0_9", "res2net50_14w_8s", "resmlp_12_224", "resnest14d",
    "resnetv2_50", "rexnet_100", "selecsls42b", "sequencer2d_s", "skresnet18", "swin_tiny_patch4_window7_224",
    "tiny_vit_5m_224", "tnt_s_legacy_patch16_224", "tresnet_m", "twins_pcpvt_small",
    "vit_tiny_patch16_224", "volo_d1_224", "xcit_nano_12_p16_224",
)  # fmt: skip
_CAUSAL = {
    "Llama": {"num_key_value_heads": 2}, "Mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "Qwen2": {"num_key_value_heads": 2}, "Gemma": {"num_key_value_heads": 1, "head_dim": 32},
    "Phi": {}, "GPTNeoX": {}, "Qwen3": {"num_key_value_heads": 2, "head_dim": 32},
}  # fmt: skip

MODELS: dict[str, Callable[[], Made]] = {
    **{f"torchvision.{name}": (lambda name=name: torchvision_model(name)) for name in _TORCHVISION},
    "torchvision.inception_v3": lambda: torchvision_model("inception_v3", 299),
    **{f"torchvision.{name}": (lambda name=name: segmentation_model(name)) for name in _SEGMENTATION},
    **{f"torchvision.{name}": (lambda name=name: video_model(name)) for name in _VIDEO},
    **{f"timm.{name}": (lambda name=name: timm_model(name)) for name in _TIMM},
    "transformers.Bert": lambda: text_model("Bert", **_SMALL),
    "transformers.DistilBert": lambda: text_model("DistilBert", n_layers=2, dim=128, n_heads=4, hidden_dim=256),
    "transformers.Albert": lambda: text_model("Albert", **_SMALL),
    "transformers.Roberta": lambda: text_model("Roberta", **_SMALL),
    "transformers.Electra": lambda: text_model("Electra", **_SMALL),
    "transformers.MobileBert": lambda: text_model("MobileBert", num_hidden_layers=2),
    "transformers.MPNet": lambda: text_model("MPNet", **_SMALL),
    "transformers.DebertaV2": lambda: text_model("DebertaV2", **_SMALL),
    "transformers.CLIPText": lambda: text_model("CLIPText", ("last_hidden_state", "pooler_output"), **_SMALL),
    "transformers.T5": lambda: text_model("T5", num_layers=2, d_model=128, num_heads=4, d_kv=32, d_ff=256),
    "transformers.Bart": lambda: text_model(
        "Bart", encoder_layers=2, d_model=128, encoder_attention_heads=4, encoder_ffn_dim=256
    ),
    "transformers.GPT2": lambda: text_model("GPT2", n_layer=2, n_embd=128, n_head=4),
    "transformers.OPT": lambda: text_model("OPT", ffn_dim=256, word_embed_proj_dim=128, **_SMALL),
    "transformers.Bloom": lambda: text_model("Bloom", n_layer=2, hidden_size=128, n_head=4),
    **{
        f"transformers.{kind}": (lambda kind=kind, more=more: text_model(kind, **(_SMALL | more)))
        for kind, more in _CAUSAL.items()
    },
    "transformers.ViT": lambda: vision_model("ViT", **_SMALL),
    "transformers.DeiT": lambda: vision_model("DeiT", **_SMALL),
    "transformers.Beit": lambda: vision_model("Beit", **_SMALL),
    "transformers.Dinov2": lambda: vision_model("Dinov2", **_SMALL),
    "transformers.CLIPVision": lambda: vision_model("CLIPVision", **_SMALL),
    "transformers.SiglipVision": lambda: vision_model("SiglipVision", **_SMALL),
    "transformers.Swin": lambda: vision_model("Swin", depths=[1, 1, 1, 1], embed_dim=48),
    "transformers.ConvNext": lambda: vision_model("ConvNext", depths=[1, 1, 1, 1], hidden_sizes=[32, 64, 96, 128]),
    "transformers.Segformer": lambda: vision_model("Segformer", depths=[1, 1, 1, 1]),
    "transformers.Whisper": whisper,
    "transformers.Wav2Vec2": lambda: audio_model("Wav2Vec2"),
    "transformers.Hubert": lambda: audio_model("Hubert"),
}


def export(name: str, form: str, path: str) -> None:
    dynamo, opset = FORMS[form]
    torch.manual_seed(SEED)
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no form in ONNX
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(model, inputs, path, dynamo=True, opset_version=opset, external_data=False)
        else:
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=opset)


def main() -> int:
    if sys.argv[1:] == ["--list"]:
        print("\n".join(MODELS))
        return 0
    warnings.filterwarnings("ignore")
    export(*sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
