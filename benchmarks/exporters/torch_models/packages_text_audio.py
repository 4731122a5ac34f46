"""Models of further packages for text, sound, series, diffusion and points, as `catalog.py` exports them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.exporters.torch_models.packages_vision import Maker, Part, found, made, randn

_D = "diffusers:"


def _diffuser(path: str, *inputs: str, of: Callable[[], tuple[torch.Tensor, ...]], **options: object) -> Maker:
    """A model of diffusers: what of `inputs` goes in by name, as tensors `of`."""
    return lambda: (
        Part(found(_D + path)(**options),
             lambda model, *given: model(**dict(zip(inputs, given, strict=True)), return_dict=False)[0]),
        of(),
    )  # fmt: skip


_TIME = torch.tensor([17])
_BLOCKS = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "block_out_channels": (32, 64),
           "cross_attention_dim": 32, "layers_per_block": 1, "norm_num_groups": 8, "attention_head_dim": 8}  # fmt: skip
_GIVEN = ("hidden_states", "timestep", "encoder_hidden_states")
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}

DIFFUSERS: dict[str, Maker] = {
    "UNet2DConditionModel": _diffuser(
        "UNet2DConditionModel", "sample", "timestep", "encoder_hidden_states",
        of=lambda: (randn(1, 4, 32, 32), _TIME, randn(1, 9, 32)), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        sample_size=32, **_BLOCKS),
    "UNet2DModel": _diffuser(
        "UNet2DModel", "sample", "timestep", of=lambda: (randn(1, 3, 32, 32), _TIME), block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8, layers_per_block=1),
    "UNet3DConditionModel": _diffuser(
        "UNet3DConditionModel", "sample", "timestep", "encoder_hidden_states",
        of=lambda: (randn(1, 4, 4, 16, 16), _TIME, randn(1, 9, 32)), down_block_types=("CrossAttnDownBlock3D",
            "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        **{key: value for key, value in _BLOCKS.items() if key != "down_block_types"}),
    "ControlNetModel": lambda: (
        Part(found(_D + "ControlNetModel")(conditioning_embedding_out_channels=(8, 16), **_BLOCKS),
             lambda model, *given: tuple(model(*given, return_dict=False)[0])),
        (randn(1, 4, 32, 32), _TIME, randn(1, 9, 32), randn(1, 3, 64, 64))),
    "AutoencoderKL": _diffuser(
        "AutoencoderKL", "sample", of=lambda: (randn(1, 3, 32, 32),), block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
    "VQModel": _diffuser(
        "VQModel", "sample", of=lambda: (randn(1, 3, 32, 32),), block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=64),
    "AutoencoderTiny": _diffuser("AutoencoderTiny", "sample", of=lambda: (randn(1, 3, 64, 64),)),
    "AutoencoderOobleck": _diffuser(
        "AutoencoderOobleck", "sample", of=lambda: (randn(1, 2, 1024),), encoder_hidden_size=16,
            downsampling_ratios=[2, 4],
        channel_multiples=[1, 2], decoder_channels=16, decoder_input_channels=8),
    "DiTTransformer2DModel": _diffuser(
        "DiTTransformer2DModel", "hidden_states", "timestep", "class_labels",
        of=lambda: (randn(1, 4, 16, 16), _TIME, torch.tensor([5])), sample_size=16, num_embeds_ada_norm=10, **_HEADS),
    "PixArtTransformer2DModel": _diffuser(
        "PixArtTransformer2DModel", *_GIVEN, of=lambda: (randn(1, 4, 16, 16), _TIME, randn(1, 9, 32)), sample_size=16,
        cross_attention_dim=32, caption_channels=32, use_additional_conditions=False, **_HEADS),
    "SD3Transformer2DModel": _diffuser(
        "SD3Transformer2DModel", *_GIVEN, "pooled_projections",
        of=lambda: (randn(1, 4, 16, 16), _TIME, randn(1, 9, 32), randn(1, 64)), sample_size=16, in_channels=4,
            out_channels=4,
        joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=64, qk_norm="rms_norm",
        dual_attention_layers=(0,), **_HEADS),
    "FluxTransformer2DModel": _diffuser(
        "FluxTransformer2DModel", *_GIVEN, "pooled_projections", "img_ids", "txt_ids",
        of=lambda: (randn(1, 64, 16), torch.tensor([0.4]), randn(1, 9, 32), randn(1, 64),
            torch.arange(192).reshape(64, 3) % 8 + 0.0, torch.zeros(9, 3)),
        in_channels=16, joint_attention_dim=32, pooled_projection_dim=64, axes_dims_rope=(4, 4, 8), num_single_layers=1,
        **_HEADS),
    "ChromaTransformer2DModel": _diffuser(
        "ChromaTransformer2DModel", *_GIVEN, "img_ids", "txt_ids",
        of=lambda: (randn(1, 64, 16), torch.tensor([0.4]), randn(1, 9, 32), torch.arange(192).reshape(64, 3) % 8 + 0.0,
            torch.zeros(9, 3)),
        in_channels=16, joint_attention_dim=32, axes_dims_rope=(4, 4, 8), num_single_layers=1,
        approximator_num_channels=16, approximator_hidden_dim=32, approximator_layers=1, **_HEADS),
    "AuraFlowTransformer2DModel": _diffuser(
        "AuraFlowTransformer2DModel", *_GIVEN, of=lambda: (randn(1, 4, 16, 16), torch.tensor([0.4]), randn(1, 9, 32)),
        sample_size=16, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, caption_projection_dim=32, pos_embed_max_size=64),
    "SanaTransformer2DModel": _diffuser(
        "SanaTransformer2DModel", "hidden_states", "encoder_hidden_states", "timestep",
        of=lambda: (randn(1, 4, 16, 16), randn(1, 9, 32), _TIME), in_channels=4, out_channels=4,
            num_cross_attention_heads=2,
        cross_attention_head_dim=16, cross_attention_dim=32, caption_channels=32, sample_size=16, **_HEADS),
    "Lumina2Transformer2DModel": _diffuser(
        "Lumina2Transformer2DModel", *_GIVEN, "encoder_attention_mask",
        of=lambda: (randn(1, 4, 16, 16), torch.tensor([0.4]), randn(1, 9, 32), torch.ones(1, 9, dtype=torch.bool)),
        sample_size=16, in_channels=4, hidden_size=48, num_layers=1, num_refiner_layers=1, num_attention_heads=2,
        num_kv_heads=1, multiple_of=16, axes_dim_rope=(8, 8, 8), axes_lens=(32, 32, 32), cap_feat_dim=32),
    "WanTransformer3DModel": _diffuser(
        "WanTransformer3DModel", *_GIVEN, of=lambda: (randn(1, 4, 3, 16, 16), _TIME, randn(1, 9, 32)), in_channels=4,
        out_channels=4, text_dim=32, freq_dim=32, ffn_dim=64, **_HEADS),
    "LTXVideoTransformer3DModel": lambda: (
        Part(found(_D + "LTXVideoTransformer3DModel")(
            in_channels=8, out_channels=8, cross_attention_dim=32, caption_channels=32, **_HEADS),
            lambda model, *given: model(*given, num_frames=2, height=4, width=4, return_dict=False)[0]),
        (randn(1, 32, 8), randn(1, 9, 32), _TIME, torch.ones(1, 9))),
    "QwenImageTransformer2DModel": lambda: (
        Part(found(_D + "QwenImageTransformer2DModel")(
            in_channels=16, out_channels=4, joint_attention_dim=32, axes_dims_rope=(4, 4, 8), **_HEADS),
            lambda model, image, text, time: model(image, text, torch.ones(1, 9, dtype=torch.int64), time,
                                                   img_shapes=[(1, 8, 8)], return_dict=False)[0]),
        (randn(1, 64, 16), randn(1, 9, 32), torch.tensor([0.4]))),
    "PriorTransformer": _diffuser(
        "PriorTransformer", "hidden_states", "timestep", "proj_embedding", "encoder_hidden_states",
        of=lambda: (randn(1, 32), _TIME, randn(1, 32), randn(1, 7, 32)), embedding_dim=32, num_embeddings=7, **_HEADS),
    "UVit2DModel": lambda: (Part(found(_D + "UVit2DModel")(
        hidden_size=32, cond_embed_dim=32, micro_cond_encode_dim=8, micro_cond_embed_dim=40, encoder_hidden_size=32,
        vocab_size=64, codebook_size=60, in_channels=32, block_out_channels=32, num_res_blocks=1, block_num_heads=2,
        num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, sample_size=8), lambda model, *given: model(
            *given)), (torch.randint(0, 60, (1, 8, 8)), randn(1, 9, 32), randn(1, 32), randn(1, 5))),
}  # fmt: skip

_T = "torchaudio.models:"
_LENGTH = torch.tensor([40])
SOUNDS: dict[str, Maker] = {
    "Conformer": lambda: (found(_T + "Conformer")(32, 4, 64, 2, 7), (randn(1, 40, 32), _LENGTH)),
    "Emformer": lambda: (found(_T + "Emformer")(32, 4, 64, 2, 8, left_context_length=8, right_context_length=4,
                                               max_memory_size=2), (randn(1, 44, 32), _LENGTH)),
    "ConvTasNet": lambda: (found(_T + "ConvTasNet")(2, 16, 64, 3, 32, 64, 3, 2), (randn(1, 1, 1600),)),
    "Wav2Letter": lambda: (found(_T + "Wav2Letter")(), (randn(1, 1, 4000),)),
    "DeepSpeech": lambda: (found(_T + "DeepSpeech")(32, 64, 20), (randn(1, 1, 40, 32),)),
    "WaveRNN": lambda: (found(_T + "WaveRNN")([2, 2, 3], 20, 12, n_res_block=2, n_rnn=32, n_fc=32, n_freq=16,
                                             n_hidden=32, n_output=32), (randn(1, 1, 72), randn(1, 1, 16, 10))),
    "HDemucs": lambda: (found(_T + "HDemucs")(["a", "b"], channels=8, nfft=256, depth=4, dconv_lstm=2, dconv_attn=3),
                        (randn(1, 2, 2048),)),
    "Wav2Vec2": lambda: (Part(found(_T + "wav2vec2_model")(
        "layer_norm", [(32, 10, 5), (32, 3, 2), (32, 3, 2)], True, 32, 0.0, 15, 4, 2, 4, 0.0, 64, 0.0, 0.0, True,
            0.0, 20),
        lambda model, sound: model(sound)[0]), (randn(1, 2000),)),
    "WavLM": lambda: (Part(found(_T + "wavlm_model")(
        "group_norm", [(32, 10, 5), (32, 3, 2), (32, 3, 2)], False, 32, 0.0, 15, 4, 2, 4, 32, 64, 0.0, 64, 0.0, 0.0,
        False, 0.0, 20), lambda model, sound: model(sound)[0]), (randn(1, 2000),)),
    "MelSpectrogram": lambda: (found("torchaudio.transforms:MelSpectrogram")(16000, 256, n_mels=20),
                               (randn(1, 2000),)),
    "MFCC": lambda: (found("torchaudio.transforms:MFCC")(16000, 13, melkwargs={"n_fft": 256, "n_mels": 20}),
                     (randn(1, 2000),)),
    "Resample": lambda: (found("torchaudio.transforms:Resample")(16000, 11025), (randn(1, 2000),)),
}  # fmt: skip

_B = "speechbrain.lobes.models."
SPEECH: dict[str, Maker] = {
    "ECAPA_TDNN": made(_B + "ECAPA_TDNN:ECAPA_TDNN", 1, 50, 24, input_size=24, channels=[32, 32, 32, 32, 96],
                       attention_channels=16, lin_neurons=24, se_channels=16, res2net_scale=4),
    "CRDNN": made(_B + "CRDNN:CRDNN", 1, 40, 20, input_size=20, rnn_layers=1, rnn_neurons=16, dnn_neurons=16,
                  cnn_channels=(8, 8)),
    "SepFormer": lambda: (found(_B + "dual_path:Dual_Path_Model")(
        32, 32, *(found(_B + "dual_path:SBTransformerBlock")(1, 32, 4, 64, norm_before=True) for _ in range(2)),
        num_layers=1, K=10, num_spks=2, linear_layer_after_inter_intra=False), (randn(1, 32, 55),)),
    "Cnn14": made(_B + "Cnn14:Cnn14", 1, 64, 64, mel_bins=64, emb_dim=64),
    "FastSpeech2Postnet": made(_B + "FastSpeech2:PostNet", 1, 30, 20, n_mel_channels=20, postnet_embedding_dim=32),
    "DiffWave": lambda: (found(_B + "DiffWave:DiffWave")(20, 2, 16, 2, 50), (
        randn(1, 1, 4096), torch.tensor([7]), randn(1, 20, 16))),
}  # fmt: skip


_X = "x_transformers:"


def _decoder(kind: str = "Decoder", length: int = 24, **options: object) -> Maker:
    return lambda: (
        found(_X + "TransformerWrapper")(
            num_tokens=60, max_seq_len=32, attn_layers=found(_X + kind)(dim=64, depth=2, heads=4, **options)),
        (torch.randint(0, 60, (1, length)),),
    )  # fmt: skip


X_TRANSFORMERS: dict[str, Maker] = {
    "plain": _decoder(),
    "rotary": _decoder(rotary_pos_emb=True, rotary_xpos=True),
    "alibi": _decoder(alibi_pos_bias=True, alibi_num_heads=2),
    "dynamic_bias": _decoder("Encoder", dynamic_pos_bias=True),
    "t5_bias": _decoder("Encoder", rel_pos_bias=True),
    "swiglu": _decoder(ff_glu=True, ff_swish=True, ff_no_bias=True, use_rmsnorm=True),
    "relu_squared": _decoder(ff_relu_squared=True, use_simple_rmsnorm=True),
    "scale_norm": _decoder(use_scalenorm=True, sandwich_norm=True),
    "memory_keys": _decoder("Encoder", attn_num_mem_kv=4, attn_one_kv_head=True),
    "qk_norm": _decoder(attn_qk_norm=True, attn_qk_norm_dim_scale=True),
    "sparse_topk": _decoder(attn_sparse_topk=4),
    "gated": _decoder(gate_residual=True, attn_gate_values=True, shift_tokens=1),
    "softclamp": _decoder(attn_softclamp_logits=True, attn_value_dim_head=24),
    "laser": _decoder(attn_laser=True),
    "sigmoid": _decoder(attn_sigmoid=True),
    "few_keys": _decoder(attn_kv_heads=2, attn_flash=True),
    "whole": lambda: (Part(found(_X + "XTransformer")(
        dim=64, enc_num_tokens=60, enc_depth=1, enc_heads=4, enc_max_seq_len=32, dec_num_tokens=50, dec_depth=1,
        dec_heads=4, dec_max_seq_len=32), lambda model, source, target: model.decoder.net(
            target, context=model.encoder(source, return_embeddings=True))),
        (torch.randint(0, 60, (1, 20)), torch.randint(0, 50, (1, 12)))),
    "continuous": lambda: (found(_X + "ContinuousTransformerWrapper")(
        dim_in=16, dim_out=8, max_seq_len=32, attn_layers=found(_X + "Encoder")(dim=64, depth=2, heads=4)),
        (randn(1, 20, 16),)),
    "vision": lambda: (found(_X + "ViTransformerWrapper")(
        image_size=64, patch_size=16, num_classes=10, attn_layers=found(_X + "Encoder")(dim=64, depth=2, heads=4)),
        (randn(1, 3, 64, 64),)),
    "neo_mlp": lambda: (found(_X + "NeoMLP")(dim_in=5, dim_hidden=7, dim_out=5, depth=2, dim_model=32),
                        (randn(1, 5),)),
}  # fmt: skip

PACKAGES: dict[str, tuple[str, dict[str, Maker]]] = {
    "diffusers": ("diffusers", DIFFUSERS),
    "torchaudio": ("torchaudio", SOUNDS),
    "speechbrain": ("speechbrain", SPEECH),
    "x_transformers": ("x_transformers", X_TRANSFORMERS),
}


ONE_FORM = dict.fromkeys((
    "diffusers.ChromaTransformer2DModel", "diffusers.FluxTransformer2DModel", "diffusers.LTXVideoTransformer3DModel",
    "diffusers.Lumina2Transformer2DModel", "diffusers.QwenImageTransformer2DModel", "diffusers.WanTransformer3DModel",
    "torchaudio.HDemucs", "torchaudio.MelSpectrogram", "torchaudio.MFCC",
    *(f"x_transformers.{name}" for name in X_TRANSFORMERS if name not in ("whole", "continuous", "vision", "neo_mlp")),
), "dynamo18")  # fmt: skip
"""Those that torch-script does not export, or not as ONNX defines it."""
