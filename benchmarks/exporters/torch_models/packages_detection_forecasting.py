"""Models of further packages: detectors, readers of lines, clicks, forecasts, latent images and videos, attention."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, randint

from benchmarks.exporters.torch_models.packages_text_audio import _diffuser
from benchmarks.exporters.torch_models.packages_vision import Made, Maker, Part, found, randn

_TIME = torch.tensor([17])
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 16}
_GIVEN = ("hidden_states", "timestep", "encoder_hidden_states")


def _part(path: str, function: Callable[..., Any], given: Callable[[], tuple[Tensor, ...]], **options: Any) -> Maker:
    return lambda: (Part(found(path)(**options), function), given())


_TV = "torchvision.models.detection:"
_BARE = {"weights": None, "weights_backbone": None}


def _scores_and_boxes(model: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    """What a detector has in front of its post-processing."""
    images = found("torchvision.models.detection.image_list:ImageList")(image, [tuple(image.shape[-2:])] * len(image))
    rows = list(model.backbone(image).values())
    heads = model.head(rows)
    anchors, *_ = model.anchor_generator(images, rows)
    return heads["cls_logits"].sigmoid(), model.box_coder.decode_single(heads["bbox_regression"][0], anchors)


def _of_regions(model: Any, image: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
    """The heads of a detector for the boxes that another part proposes."""
    rows, heads, size = model.backbone(image), model.roi_heads, [tuple(image.shape[-2:])]
    classes, moves = heads.box_predictor(heads.box_head(heads.box_roi_pool(rows, [boxes[0]], size)))
    results = [classes.softmax(-1), moves]
    for kind in ("mask", "keypoint"):
        if (pool := getattr(heads, f"{kind}_roi_pool")) is not None:
            head, predictor = getattr(heads, f"{kind}_head"), getattr(heads, f"{kind}_predictor")
            results.append(predictor(head(pool(rows, [boxes[0]], size))))
    return tuple(results)


def _boxes() -> tuple[Tensor, ...]:
    begin, size = torch.rand(1, 8, 2) * 60, 3 * 10 ** (2 * torch.rand(1, 8, 2))
    return randn(1, 3, 128, 128), torch.cat([begin, begin + size], -1)


def _pair() -> tuple[Tensor, ...]:
    return torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)


def _fcos(model: Any, image: Tensor) -> tuple[Tensor, ...]:
    return tuple(model.head(list(model.backbone(image).values())).values())


DETECTORS: dict[str, Maker] = {
    "retinanet_front": _part(_TV + "retinanet_resnet50_fpn", _scores_and_boxes, lambda: (randn(1, 3, 128, 128),),
                             num_classes=5, **_BARE),
    "ssdlite_front": _part(_TV + "ssdlite320_mobilenet_v3_large", _scores_and_boxes,
                           lambda: (randn(1, 3, 320, 320),), num_classes=5, **_BARE),
    "fcos_front": _part(_TV + "fcos_resnet50_fpn", _fcos, lambda: (randn(1, 3, 128, 128),), num_classes=5, **_BARE),
    "maskrcnn_regions": _part(_TV + "maskrcnn_resnet50_fpn", _of_regions, _boxes, num_classes=5, **_BARE),
    "keypointrcnn_regions": _part(_TV + "keypointrcnn_resnet50_fpn", _of_regions, _boxes, num_classes=2, **_BARE),
    "raft_small": _part("torchvision.models.optical_flow:raft_small", lambda model, a, b: model(
        a, b, num_flow_updates=2)[-1], _pair),
    "raft_large": _part("torchvision.models.optical_flow:raft_large", lambda model, a, b: model(
        a, b, num_flow_updates=1)[-1], _pair),
}  # fmt: skip

_DR = "doctr.models."
_OWN = {"pretrained": False, "exportable": True}


def _logits(model: Any, image: Tensor) -> Any:
    return model(image)["logits"]


READERS: dict[str, Maker] = {
    **{
        name: _part(f"{_DR}detection:{name}", _logits, lambda: (torch.rand(1, 3, 128, 128),),
                    pretrained_backbone=False, **_OWN)
        for name in ("db_mobilenet_v3_large", "linknet_resnet18", "fast_tiny")
    },
    **{
        name: _part(f"{_DR}recognition:{name}", _logits, lambda: (torch.rand(1, 3, 32, 128),),
                    pretrained_backbone=False, vocab="abcdefghij", **_OWN)
        for name in ("crnn_mobilenet_v3_small", "vitstr_small", "parseq", "master", "sar_resnet31")
    },
    **{
        name: _part(f"{_DR}classification:{name}", lambda model, image: model(image),
                    lambda: (torch.rand(1, 3, 32, 32),), pretrained=False, num_classes=10)
        for name in ("magc_resnet31", "textnet_tiny", "vit_s")
    },
}  # fmt: skip
EASY: dict[str, Maker] = {
    "craft": _part("easyocr.craft:CRAFT", lambda model, image: model(image)[0], lambda: (randn(1, 3, 96, 96),),
                   pretrained=False),
    "crnn": _part("easyocr.model.model:Model", lambda model, image: model(image, None), lambda: (randn(1, 1, 32, 128),),
                  input_channel=1, output_channel=64, hidden_size=32, num_class=40),
}  # fmt: skip
BOXES: dict[str, Maker] = {
    "lite0": _part("effdet:create_model", lambda model, image: [each for part in model(image) for each in part],
                   lambda: (randn(1, 3, 128, 128),), model_name="tf_efficientdet_lite0", pretrained=False,
                   pretrained_backbone=False, image_size=(128, 128)),
}  # fmt: skip


def _clicks(kind: str, *, lists: bool = False) -> Maker:
    def made() -> Made:
        sparse, dense, listed = (found(f"deepctr_torch.inputs:{name}") for name in ("SparseFeat", "DenseFeat",
                                                                                  "VarLenSparseFeat"))  # fmt: skip
        columns = [*(sparse(name, 20, embedding_dim=8) for name in "abc"), dense("x", 2)]
        given = [randint(1, 20, (1, 3)).float(), randn(1, 2)]
        if lists:
            columns.append(listed(sparse("h", 20, embedding_dim=8), 6, combiner="mean"))
            given.append(randint(1, 20, (1, 6)).float())
        options = {} if kind in ("PNN", "MLR") else {"linear_feature_columns": columns}
        first = "region_feature_columns" if kind == "MLR" else "dnn_feature_columns"
        return found(f"deepctr_torch.models:{kind}")(**{first: columns}, device="cpu", **options), (
            torch.cat(given, 1),
        )

    return made


CLICKS: dict[str, Maker] = {
    **{kind: _clicks(kind) for kind in ("DIFM", "FiBiNET", "IFM", "MLR", "NFM", "ONN", "PNN", "WDL", "xDeepFM")},
    "DeepFM_lists": _clicks("DeepFM", lists=True),
}


def _forecast(kind: str, *, series: int = 1, **options: Any) -> Maker:
    def made() -> Made:
        if "neuralforecast" not in sys.modules:  # its own first file wants a scheduler of clusters
            package = types.ModuleType("neuralforecast")
            package.__path__ = list(importlib.util.find_spec("neuralforecast").submodule_search_locations)  # type: ignore
            sys.modules["neuralforecast"] = package
        more = {"n_series": series} if series > 1 else {}
        model = found(f"neuralforecast.models.{kind.lower()}:{kind}")(
            h=12, input_size=48, max_steps=1, **more, **options
        )
        absent = dict.fromkeys(("hist_exog", "futr_exog", "stat_exog"))
        return Part(model, lambda model, y: model({"insample_y": y, "insample_mask": torch.ones_like(y), **absent})), (
            randn(1, 48, series),
        )

    return made


_ROWS = {"hidden_size": 32}
_WIDE = _ROWS | {"n_heads": 4, "d_ff": 64}
FORECASTS: dict[str, Maker] = {
    **{kind: _forecast(kind) for kind in ("NHITS", "NLinear", "BiTCN", "DeepNPTS", "NBEATSx", "xLSTM")},
    **{kind: _forecast(kind, **_ROWS) for kind in ("TiDE", "TFT", "VanillaTransformer")},
    "Autoformer": _forecast("Autoformer", conv_hidden_size=32, **_ROWS),
    "PatchTST": _forecast("PatchTST", n_heads=4, encoder_layers=1, linear_hidden_size=64, **_ROWS),
    "KAN": _forecast("KAN", hidden_size=16), "DeepAR": _forecast("DeepAR", lstm_hidden_size=16),
    **{kind: _forecast(kind, series=5) for kind in ("TSMixer", "StemGNN", "RMoK", "XLinear")},
    "iTransformer": _forecast("iTransformer", series=5, **_WIDE),
    "SOFTS": _forecast("SOFTS", series=5, d_core=16, d_ff=32, **_ROWS),
    "TimeMixer": _forecast("TimeMixer", series=5, d_model=16, d_ff=16),
}  # fmt: skip

_D = "diffusers:"
_SIZES = {"original_size": (64.0, 64.0), "target_size": (64.0, 64.0), "crop_coords": (0.0, 0.0)}


def _sizes() -> tuple[Tensor, ...]:
    return tuple(torch.tensor([each]) for each in _SIZES.values())


_VIEWS = {"patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 1, "text_embed_dim": 32,
          "time_embed_dim": 16, "condition_dim": 8, **_HEADS}  # fmt: skip
_FOUR = {"block_out_channels": (8, 8, 8, 8), "latent_channels": 4, "layers_per_block": 1}
LATENTS: dict[str, Maker] = {
    "UNetSpatioTemporal": _part(_D + "UNetSpatioTemporalConditionModel", lambda model, *given: model(
        *given, return_dict=False)[0], lambda: (randn(1, 2, 8, 16, 16), _TIME, randn(1, 1, 32),
                                               torch.tensor([[6.0, 127.0, 0.02]])),
        block_out_channels=(32, 64), down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
        up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), cross_attention_dim=32,
        num_attention_heads=8, layers_per_block=1, transformer_layers_per_block=1,
        projection_class_embeddings_input_dim=96, addition_time_embed_dim=32, num_frames=2),
    "CogVideoX": _diffuser("CogVideoXTransformer3DModel", "hidden_states", "encoder_hidden_states", "timestep",
                           of=lambda: (randn(1, 3, 4, 8, 8), randn(1, 9, 32), _TIME), in_channels=4, out_channels=4,
                           time_embed_dim=16, text_embed_dim=32, num_layers=2, sample_width=8, sample_height=8,
                           sample_frames=9, max_text_seq_length=9, **_HEADS),
    "CogView3Plus": _diffuser("CogView3PlusTransformer2DModel", "hidden_states", "encoder_hidden_states", "timestep",
                              *_SIZES, of=lambda: (randn(1, 4, 16, 16), randn(1, 9, 32), _TIME, *_sizes()),
                              pos_embed_max_size=16, sample_size=16, **_VIEWS),
    "CogView4": _diffuser("CogView4Transformer2DModel", "hidden_states", "encoder_hidden_states", "timestep", *_SIZES,
                          of=lambda: (randn(1, 4, 16, 16), randn(1, 9, 32), _TIME, *_sizes()), **_VIEWS),
    "Latte": _diffuser("LatteTransformer3DModel", *_GIVEN, of=lambda: (randn(1, 4, 2, 8, 8), _TIME, randn(1, 9, 32)),
                       sample_size=8, num_layers=1, patch_size=2, attention_head_dim=8, num_attention_heads=3,
                       caption_channels=32, in_channels=4, cross_attention_dim=24, out_channels=8,
                       norm_type="ada_norm_single", norm_elementwise_affine=False, video_length=2, attention_bias=True,
                       activation_fn="gelu-approximate"),
    "StableAudioDiT": _part(_D + "StableAudioDiTModel", lambda model, x, t, e, g: model(
        x, t, encoder_hidden_states=e, global_hidden_states=g, return_dict=False)[0],
        lambda: (randn(1, 3, 20), torch.tensor([0.3]), randn(1, 9, 32), randn(1, 1, 16)), sample_size=20,
        in_channels=3, num_layers=2, num_key_value_attention_heads=2, out_channels=3, cross_attention_dim=32,
        cross_attention_input_dim=32, time_proj_dim=16, global_states_input_dim=16, **_HEADS),
    "AutoencoderKLCogVideoX": _part(_D + "AutoencoderKLCogVideoX", lambda model, x: model.decode(
        x, return_dict=False)[0], lambda: (randn(1, 4, 2, 8, 8),), in_channels=3, out_channels=3, norm_num_groups=2,
        down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4,
        temporal_compression_ratio=4, **_FOUR),
    "AutoencoderKLHunyuanVideo": _part(_D + "AutoencoderKLHunyuanVideo", lambda model, x: model.decode(
        x, return_dict=False)[0], lambda: (randn(1, 4, 2, 4, 4),), in_channels=3, out_channels=3, norm_num_groups=4,
        down_block_types=("HunyuanVideoDownBlock3D",) * 4, up_block_types=("HunyuanVideoUpBlock3D",) * 4, **_FOUR),
    "AutoencoderKLWan": _part(_D + "AutoencoderKLWan", lambda model, x: model.encode(x).latent_dist.mean,
                              lambda: (randn(1, 3, 5, 32, 32),), base_dim=3, z_dim=4, dim_mult=[1, 1, 1, 1],
                              num_res_blocks=1, temperal_downsample=[False, True, True], latents_mean=[0.0] * 4,
                              latents_std=[1.0] * 4),
    "T2IAdapter": _part(_D + "T2IAdapter", lambda model, x: tuple(model(x)), lambda: (randn(1, 3, 64, 64),),
                        in_channels=3, channels=[16, 32, 32, 32], num_res_blocks=1, downscale_factor=8),
    "SD3ControlNet": _part(_D + "SD3ControlNetModel", lambda model, x, c, e, p, t: tuple(model(
        x, c, encoder_hidden_states=e, pooled_projections=p, timestep=t, return_dict=False)[0]),
        lambda: (randn(1, 4, 16, 16), randn(1, 4, 16, 16), randn(1, 9, 32), randn(1, 64), _TIME), sample_size=16,
        patch_size=2, in_channels=4, num_layers=1, joint_attention_dim=32, caption_projection_dim=32,
        pooled_projection_dim=64, out_channels=4, pos_embed_max_size=16, **_HEADS),
}  # fmt: skip


def _words(count: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (randint(0, 60, (1, count)),)


def _rows(model: nn.Module, *given: Tensor) -> Any:
    return model(*given)


_LM = {"num_tokens": 60, "dim": 64, "depth": 2}
PERFORMER = {"lm": _part("performer_pytorch:PerformerLM", _rows, _words(24), max_seq_len=32, heads=4, **_LM)}
LINFORMER = {"lm": _part("linformer:LinformerLM", _rows, _words(32), seq_len=32, heads=4, k=8, **_LM)}
NYSTROM = {"rows": _part("nystrom_attention:Nystromformer", _rows, lambda: (randn(1, 32, 64),), dim=64, depth=2,
                         heads=4, num_landmarks=8)}  # fmt: skip
G_MLP = {"lm": _part("g_mlp_pytorch:gMLP", _rows, _words(32), seq_len=32, causal=True, **_LM)}
PERCEIVER = {"io": _part("perceiver_pytorch:PerceiverIO", lambda model, x, queries: model(x, queries=queries),
                         lambda: (randn(1, 40, 32), randn(1, 12, 16)), dim=32, queries_dim=16, logits_dim=10, depth=2,
                         num_latents=16, latent_dim=32, cross_heads=1, latent_heads=4, cross_dim_head=16,
                         latent_dim_head=8)}  # fmt: skip

PACKAGES: dict[str, tuple[str, dict[str, Maker]]] = {
    "detection": ("torchvision", DETECTORS), "doctr": ("doctr", READERS), "easyocr": ("easyocr", EASY),
    "effdet": ("effdet", BOXES), "deepctr": ("deepctr_torch", CLICKS), "neuralforecast": ("neuralforecast", FORECASTS),
    "diffusion": ("diffusers", LATENTS), "performer": ("performer_pytorch", PERFORMER),
    "linformer": ("linformer", LINFORMER), "nystrom": ("nystrom_attention", NYSTROM), "g_mlp": ("g_mlp_pytorch", G_MLP),
    "perceiver": ("perceiver_pytorch", PERCEIVER),
}  # fmt: skip

ONE_FORM = {
    name: "dynamo18" if name.rpartition(".")[2] in ("Autoformer", "PatchTST", "StemGNN") else "ts17"
    for package, (_, models) in PACKAGES.items()
    for name in (f"{package}.{model}" for model in models)
}
