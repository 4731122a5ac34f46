"""Networks of timm, the smallest of each family."""

from __future__ import annotations

SMALLEST = (
    "bat_resnext26ts", "beit_base_patch16_224", "botnet26t_256", "caformer_s18", "cait_xxs24_224", "coat_lite_tiny",
    "coatnet_nano_rw_224", "convformer_s18", "convit_tiny", "convmixer_768_32", "convnext_atto_rms", "convnextv2_atto",
    "crossvit_tiny_240", "cs3darknet_focus_s", "cspresnet50", "csatv2", "darknetaa53", "davit_tiny",
    "deit_tiny_patch16_224", "deit3_small_patch16_224", "dla34", "dpn48b", "eca_nfnet_l0", "edgenext_xx_small",
    "efficientformer_l1", "efficientformerv2_s0", "efficientnet_lite0", "efficientvit_b0", "efficientvit_m0",
    "ese_vovnet19b_dw", "eva02_tiny_patch14_224", "fasternet_t0", "fastvit_t8", "fbnetv3_b", "flexivit_small",
    "focalnet_tiny_srf", "gcresnet33ts", "gernet_s", "ghostnet_100", "ghostnetv2_100", "ghostnetv3_050",
    "gmixer_24_224", "gmlp_s16_224", "halonet26t", "hardcorenas_a", "hgnet_tiny", "hiera_tiny_224", "hrnet_w18_small",
    "inception_next_atto", "inception_resnet_v2", "inception_v4", "lambda_resnet26t", "lcnet_035", "levit_128s",
    "levit_conv_128s", "legacy_senet154", "mambaout_femto", "maxvit_nano_rw_256", "maxxvit_rmlp_nano_rw_256",
    "mixer_s32_224", "mixnet_s", "mobilenetv4_conv_small", "mobilenetv4_hybrid_medium", "mobileone_s0",
    "mobilevit_xxs", "mobilevitv2_050", "mvitv2_tiny", "nest_tiny", "nextvit_small", "nf_resnet26", "pit_ti_224",
    "poolformer_s12", "poolformerv2_s12", "pvt_v2_b0", "pvt_v2_b2_li", "rdnet_tiny", "regnetx_002", "regnety_002",
    "regnetz_b16", "repghostnet_050", "repvgg_a0", "repvit_m0_9", "res2net50_14w_8s", "res2next50", "resmlp_12_224",
    "resnest14d", "resnetv2_50", "rexnet_100", "selecsls42b", "semnasnet_050", "sequencer2d_s", "shvit_s1",
    "skresnet18", "starnet_s1", "swiftformer_xs", "swin_tiny_patch4_window7_224", "swinv2_cr_tiny_ns_224",
    "swinv2_tiny_window8_256", "tiny_vit_5m_224", "tinynet_e", "tnt_s_legacy_patch16_224", "tresnet_m",
    "twins_pcpvt_small", "twins_svt_small", "visformer_tiny", "vit_relpos_small_patch16_224", "vit_small_r26_s32_224",
    "vit_tiny_patch16_224", "volo_d1_224", "vovnet39a", "xception41", "xcit_nano_12_p16_224",
)  # fmt: skip

LATER = (
    "dla46x_c", "dla60_res2next", "efficientnet_b0_g8_gn", "efficientnet_b0_g16_evos", "efficientnet_blur_b0",
    "mobilenet_edgetpu_v2_xs", "mobilenetv1_100h", "mobilenetv4_conv_aa_medium", "mobilenetv4_conv_blur_medium",
    "mobileone_s4", "nf_seresnet26", "regnety_040_sgn", "regnetz_c16_evos", "resnet51q", "resnetaa34d",
    "resnetv2_50d_frn", "sebotnet33ts_256", "tf_mixnet_m",
)  # fmt: skip
"""What came later stands behind all else: which of two forms a model is exported in depends on its place."""
