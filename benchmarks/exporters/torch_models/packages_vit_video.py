"""Models of packages of vision transformers, features, videos and graphs, as `catalog.py` exports them."""

from __future__ import annotations

import torch

from benchmarks.exporters.torch_models.packages_vision import Maker, Part, found, made, randn

_V = "vit_pytorch."
_VIT = {"image_size": 64, "num_classes": 10, "dim": 64, "depth": 2, "heads": 4, "mlp_dim": 128}
_PATCHES = _VIT | {"patch_size": 16}
_IMAGE = (1, 3, 64, 64)


def _vit(module: str, name: str = "ViT", **options: object) -> Maker:
    return made(f"{_V}{module}:{name}", *_IMAGE, **(_PATCHES | options))


VIT_PYTORCH: dict[str, Maker] = {
    "simple": _vit("simple_vit", "SimpleViT"),
    "cait": _vit("cait", "CaiT", cls_depth=1),
    "deep": _vit("deepvit", "DeepViT"),
    "rvt": _vit("rvt", "RvT"),
    "xcit": _vit("xcit", "XCiT", cls_depth=1),
    "parallel": _vit("parallel_vit"),
    "small_dataset": _vit("vit_for_small_dataset"),
    "patch_merger": _vit("vit_with_patch_merger", patch_merge_layer=1),
    "memory": _vit("learnable_memory_vit"),
    "fft": _vit("simple_vit_with_fft", "SimpleViT", freq_patch_size=8),
    "qk_norm": _vit("simple_vit_with_qk_norm", "SimpleViT"),
    "value_residual": _vit("simple_vit_with_value_residual", "SimpleViT"),
    "hyper_connections": _vit("simple_vit_with_hyper_connections", "SimpleViT", num_residual_streams=2),
    "uvit": _vit("simple_uvit", "SimpleUViT"),
    "normalized": _vit("normalized_vit", "nViT"),
    "five": _vit("vit_5"),
    "registers": _vit("simple_vit_with_register_tokens", "SimpleViT"),
    "nd_rotary": made(_V + "vit_nd_rotary:ViTND", 1, 3, 8, 32, 32, ndim=3, input_shape=(8, 32, 32),
                      patch_size=(4, 8, 8), num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128),
    "volume": made(_V + "vit_3d:ViT", 1, 3, 8, 64, 64, frames=8, frame_patch_size=2, image_patch_size=16, **_VIT),
    "sequence": made(_V + "vit_1d:ViT", 1, 3, 128, seq_len=128, patch_size=16, num_classes=10, dim=64, depth=2,
                     heads=4, mlp_dim=128),
    "cct": made(_V + "cct:CCT", *_IMAGE, img_size=64, embedding_dim=64, num_layers=2, num_heads=4, num_classes=10,
                mlp_ratio=2),
    "cross": made(_V + "cross_vit:CrossViT", 1, 3, 96, 96, image_size=96, num_classes=10, depth=1, sm_dim=32,
                  lg_dim=64, sm_enc_mlp_dim=64, lg_enc_mlp_dim=128, lg_enc_depth=1),
    "cross_former": made(_V + "crossformer:CrossFormer", 1, 3, 224, 224, dim=(16, 32, 64, 64), depth=(1, 1, 1, 1),
                         num_classes=10),
    "levit": made(_V + "levit:LeViT", 1, 3, 224, 224, image_size=224, num_classes=10, dim=(32, 48, 64), depth=1,
                  heads=(2, 3, 4), mlp_mult=2),
    "max": made(_V + "max_vit:MaxViT", 1, 3, 224, 224, num_classes=10, dim=16, depth=(1, 1), dim_conv_stem=16),
    "mobile": lambda: (found(_V + "mobile_vit:MobileViT")(
        (64, 64), [32, 48, 64], [16, 16, 24, 24, 32, 32, 40, 40, 48, 48, 64], 10), (randn(*_IMAGE),)),
    "nest": made(_V + "nest:NesT", *_IMAGE, image_size=64, patch_size=4, dim=32, heads=2, num_hierarchies=3,
                 block_repeats=(1, 1, 1), num_classes=10),
    "pit": made(_V + "pit:PiT", *_IMAGE, image_size=64, patch_size=8, dim=32, num_classes=10, depth=(1, 1, 1), heads=2,
                mlp_dim=64),
    "region": made(_V + "regionvit:RegionViT", 1, 3, 224, 224, dim=(16, 32, 48, 64), depth=(1, 1, 1, 1),
                   num_classes=10, use_peg=True),
    "scalable": made(_V + "scalable_vit:ScalableViT", 1, 3, 128, 128, num_classes=10, dim=32, heads=(2, 4), depth=(1,
        1),
                     ssa_dim_key=(16, 16), reduction_factor=(8, 4), window_size=(8, None)),
    "sep": made(_V + "sep_vit:SepViT", 1, 3, 224, 224, num_classes=10, dim=32, dim_head=16, heads=(1, 2), depth=(1, 1),
                window_size=7),
    "t2t": made(_V + "t2t:T2TViT", *_IMAGE, image_size=64, num_classes=10, dim=64, depth=1, heads=4, mlp_dim=128,
                t2t_layers=((7, 4), (3, 2))),
    "twins": made(_V + "twins_svt:TwinsSVT", 1, 3, 224, 224, num_classes=10, s1_emb_dim=16, s2_emb_dim=32,
        s3_emb_dim=48,
                  s4_emb_dim=64, s3_depth=1, s4_depth=1),
    "vivit": made(_V + "vivit:ViViT", 1, 3, 8, 64, 64, image_size=64, frames=8, image_patch_size=16, frame_patch_size=2,
                  num_classes=10, dim=64, spatial_depth=1, temporal_depth=1, heads=4, mlp_dim=128,
                  use_flash_attn=False),
    "look": made(_V + "look_vit:LookViT", 1, 3, 96, 96, image_size=96, num_classes=10, dim=64, depth=1, heads=4,
                 patch_size=16, highres_patch_size=12),
    "cvt": made(_V + "cvt:CvT", 1, 3, 96, 96, num_classes=10, s1_emb_dim=16, s2_emb_dim=24, s3_emb_dim=48, s2_depth=1,
                s3_depth=1, s2_heads=1, s3_heads=3),
}  # fmt: skip

_K = "kornia.feature:"
KORNIA: dict[str, Maker] = {
    "HardNet": lambda: (found(_K + "HardNet")(False), (randn(1, 1, 32, 32),)),
    "HyNet": lambda: (found(_K + "HyNet")(False), (randn(1, 1, 32, 32),)),
    "SOSNet": lambda: (found(_K + "SOSNet")(False), (randn(1, 1, 32, 32),)),
    "TFeat": lambda: (found(_K + "TFeat")(False), (randn(1, 1, 32, 32),)),
    "KeyNet": lambda: (found(_K + "KeyNet")(False), (torch.rand(1, 1, 64, 64),)),
    "DISK": lambda: (Part(found(_K + "DISK")(32), lambda model, image: model.heatmap_and_dense_descriptors(image)),
                     (torch.rand(1, 3, 64, 64),)),
    "LoFTRBackbone": lambda: (Part(found(_K + "LoFTR")(None), lambda model, image: tuple(model.backbone(image))),
                              (torch.rand(1, 1, 64, 64),)),
    "LoFTRCoarse": lambda: (Part(found(_K + "LoFTR")(None), lambda model, a, b: model.loftr_coarse(a, b)),
                            (randn(1, 48, 256), randn(1, 48, 256))),
    "SOLD2": lambda: (Part(found(_K + "SOLD2")(False), lambda model, image: tuple(model.model(image).values())),
                      (torch.rand(1, 1, 64, 64),)),
    "MKD": lambda: (found(_K + "MKDDescriptor")(32, whitening=None), (torch.rand(1, 1, 32, 32),)),
    "SIFT": lambda: (found(_K + "SIFTDescriptor")(32), (torch.rand(1, 1, 32, 32),)),
    "canny": lambda: (Part(torch.nn.Identity(), lambda model, image: found("kornia.filters:sobel")(image)),
                      (torch.rand(1, 3, 48, 48),)),
    "hsv": lambda: (Part(torch.nn.Identity(), lambda model, image: found("kornia.color:rgb_to_hsv")(image)),
                    (torch.rand(1, 3, 48, 48),)),
    "lab": lambda: (Part(torch.nn.Identity(), lambda model, image: found("kornia.color:rgb_to_lab")(image)),
                    (torch.rand(1, 3, 48, 48),)),
    "ssim": lambda: (Part(torch.nn.Identity(), lambda model, a, b: found("kornia.metrics:ssim")(a, b, 11)),
                     (torch.rand(1, 3, 48, 48), torch.rand(1, 3, 48, 48))),
    "warp": lambda: (Part(torch.nn.Identity(), lambda model, image, m: found("kornia.geometry:warp_perspective")(
        image, m, (40, 52))), (torch.rand(1, 3, 48, 48), torch.eye(3)[None] + 0.01 * randn(1, 3, 3))),
    "clahe": lambda: (Part(torch.nn.Identity(), lambda model, image: found("kornia.enhance:equalize_clahe")(image)),
                      (torch.rand(1, 1, 64, 64),)),
    "median": lambda: (Part(torch.nn.Identity(), lambda model, image: found("kornia.filters:median_blur")(image, (3,
        3))),
                       (torch.rand(1, 3, 32, 32),)),
}  # fmt: skip


_P = "pytorchvideo.models."
VIDEOS: dict[str, Maker] = {
    "x3d": lambda: (found(_P + "x3d:create_x3d")(input_clip_length=4, input_crop_size=96, model_num_class=10),
                    (randn(1, 3, 4, 96, 96),)),
    "slowfast": lambda: (Part(found(_P + "slowfast:create_slowfast")(model_depth=18, model_num_class=10,
                                                                    head_pool_kernel_sizes=((2, 2, 2), (8, 2, 2))),
                              lambda model, slow, fast: model([slow, fast])),
                         (randn(1, 3, 2, 64, 64), randn(1, 3, 8, 64, 64))),
    "csn": lambda: (found(_P + "csn:create_csn")(model_depth=50, model_num_class=10, stem_dim_out=16,
                                                head_pool_kernel_size=(1, 2, 2)), (randn(1, 3, 4, 64, 64),)),
    "mvit": lambda: (found(_P + "vision_transformers:create_multiscale_vision_transformers")(
        spatial_size=64, temporal_size=8, depth=2, patch_embed_dim=32, head_num_classes=10,
        embed_dim_mul=[[1, 2.0]], atten_head_mul=[[1, 2.0]], pool_q_stride_size=[[1, 1, 2, 2]],
        pool_kv_stride_adaptive=[1, 2, 2], pool_kvq_kernel=[3, 3, 3]), (randn(1, 3, 8, 64, 64),)),
}  # fmt: skip

_G = "torch_geometric.nn:"


def _graph(name: str, *sizes: int, **options: object) -> Maker:
    return lambda: (found(_G + name)(*sizes, **options), (randn(1, 20, 16), torch.rand(1, 20, 20).round()))


def _sparse(name: str) -> Maker:
    """A network of one graph, given by its edges."""
    return lambda: (
        Part(found(_G + name)(16, 32, 2, 8), lambda model, x, edges: model(x[0], edges[0])[None]),
        (randn(1, 20, 16), torch.randint(0, 20, (1, 2, 60))),
    )


GRAPHS: dict[str, Maker] = {
    **{name: _sparse(name) for name in ("GCN", "GAT", "GraphSAGE", "GIN")},
    "DenseGCN": _graph("DenseGCNConv", 16, 8),
    "DenseSAGE": _graph("DenseSAGEConv", 16, 8),
    "DenseGAT": _graph("DenseGATConv", 16, 8, heads=2),
    "DenseGraph": _graph("DenseGraphConv", 16, 8),
    "DenseGIN": lambda: (found(_G + "DenseGINConv")(torch.nn.Linear(16, 8)), (
        randn(1, 20, 16), torch.rand(1, 20, 20).round())),
    "diff_pool": lambda: (Part(found(_G + "DenseGCNConv")(16, 4), lambda model, x, adj: found(
        _G + "dense_diff_pool")(x, adj, model(x, adj))[:2]), (randn(1, 20, 16), torch.rand(1, 20, 20).round())),
    "mincut_pool": lambda: (Part(found(_G + "DenseGCNConv")(16, 4), lambda model, x, adj: found(
        _G + "dense_mincut_pool")(x, adj, model(x, adj))[:2]), (randn(1, 20, 16), torch.rand(1, 20, 20).round())),
}  # fmt: skip


def _clip(name: str, tower: str, size: int = 224) -> Maker:
    def model() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        config = dict(found("open_clip:get_model_config")(name))
        for part in ("vision_cfg", "text_cfg"):
            config[part] = dict(config[part])
            if isinstance(config[part].get("layers"), int):
                config[part]["layers"] = 2
        own = found("open_clip:CLIP" if "custom_text" not in config else "open_clip:CustomTextCLIP")
        config.pop("custom_text", None)
        net = own(**config)
        if tower == "image":
            return Part(net, lambda model, image: model.encode_image(image, normalize=True)), (randn(1, 3, size, size),)
        return Part(net, lambda model, words: model.encode_text(words, normalize=True)), (
            torch.randint(1, 1000, (1, net.context_length)),
        )

    return model


CLIPS: dict[str, Maker] = {
    "ViT-B-32-image": _clip("ViT-B-32", "image"), "ViT-B-32-text": _clip("ViT-B-32-quickgelu", "text"),
    "RN50-image": _clip("RN50", "image"),
    "SigLIP-text": _clip("ViT-B-16-SigLIP", "text"), "MobileCLIP-S1-text": _clip("MobileCLIP-S1", "text"),
    "coca-image": _clip("coca_ViT-B-32", "image"),
}  # fmt: skip


def _rfdetr() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    model = found("rfdetr:RFDETRNano")(pretrain_weights=None).model.model.cpu()
    model.export()
    return model, (randn(1, 3, 384, 384),)


PACKAGES: dict[str, tuple[str, dict[str, Maker]]] = {
    "vit_pytorch": ("vit_pytorch", VIT_PYTORCH),
    "kornia": ("kornia", KORNIA),
    "pytorchvideo": ("pytorchvideo", VIDEOS),
    "torch_geometric": ("torch_geometric", GRAPHS),
    "open_clip": ("open_clip", CLIPS),
    "rfdetr": ("rfdetr", {"nano": _rfdetr}),
}


ONE_FORM = dict.fromkeys(("vit_pytorch.fft", "vit_pytorch.nd_rotary"), "dynamo18")
"""Those that torch-script does not export."""
