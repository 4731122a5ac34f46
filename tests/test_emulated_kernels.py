"""Kernels of most kinds agree with NumPy on the emulated GPU, in whatever order warps, copies and products proceed.

`python -m bolt_build.emulator python -m pytest -m gpu tests/test_gpu_kernels.py` asks the same of all of them.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import emulated
import gpu_harness
import numpy as np
import pytest
from families_harness import Layer, values_of
from gpu_bf16 import in_bf16
from gpu_harness import Library, Trial, compile_all, write
from gpu_layers import small_trials
from hard_rows import KINDS, kinds, row
from hypothesis import example, given, settings
from shared_folders import SharedFolder

from bolt_build.graph.ir import Array
from bolt_build.toolchain import probe

READ_APART = tuple(
    f"{name}-between24"
    for name in (
        "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16/channels_last-f16/channels_last",
        "form-3x3s2-residual-cutlass-128x64x64xcooperativex2x1-f16/channels_last-f16/channels_last",
        "form-1x1-residual-cutlass-256x32x64xcooperativex1x2-f16/channels_last-f16/channels_last",
        "narrow-1x1-residual-cutlass-128x128x32x64x64x4x4-f16/channels_last-f16/channels_last",
        "resident-copied-cutlass-4x2xturns-f16/channels_last-f16/channels_last",
        "resident-residual-cutlass-8x4xturns-f16/channels_last-f16/channels_last",
        "rolling-8-cutlass-16x64x2x6-f16/channels_last-f16/channels_last",
        "pair-resident-odd+72-cutlass-14x128x3xturns-f16/channels_last-f16/channels_last",
        "pair-form-3x3s2+72-cutlass-128x96x80x64xcooperative-f16/channels_last-f16/channels_last",
        "rows-pair+56-cutlass-128x64x64x64x32x64x64x3xregisters-f16/channels_last-f16/channels_last-rows64",
        "dw-form-grouped-depthwisex4x8x8x16x4xregistersx2-f16/channels_last-f16/channels_last",
        "dw-form-grouped-rowsx2x24x32x4x8x4x1-f16/channels_last-f16/channels_last",
        "dw-form-7x7-grouped-diagonalx6x1x14x1-f16/channels_last-f16/channels_last",
        "dw-7x7-form-grouped-bandedx8x4x2x30x1-f16/channels_last-f16/channels_last",
        "gr-form-4-grouped-tensor_corex4x7x14x2x1x4x1xsharedx2-f16/channels_last-f16/channels_last",
        "chain-3x3s2+24-grouped-chainx2x8x1x8x128x1x2-f16/channels_last-f16/channels_last",
        "inverted-3x3s2+24-grouped-invertedx2x8x1x3x96x2-f16/channels_last-f16/channels_last",
        "normed-7x7-grouped-normedx2x1x32x1x8-f16/channels_last-f16/row",
        "rows-pool-3-24-portable-direct-f16/channels_last-f16/channels_last-rows32",
        "rows-pool-5-7-portable-direct-f16/channels_last-f16/channels_last-rows15",
        "f16-rearrange-pixels-portable-direct-f16/row-f16/row",
        "f16-heads-rms-turned-portable-direct-f16/row-f16/row",
        "f16-gate-of-rows-portable-direct-f16/row-f16/row",
        "half-placed-rows-portable-tensor_coresx32x32-f16/row-f16/row",
        "f16-gate-first-portable-direct-f16/row-f16/row",
    )
)
"""One of each way in which kernels read slices of channels, and residuals that are some, where they lie."""

# Of the matrix instructions of one warp and of four; in slices of the depth, in clusters with multicast; weights in
# registers; sums that roll through them; pairs, with residuals; pooling behind windows; plain loops; groups of
# channels, odd ones in whatever tile; products in fp32, in tiles; attention, keys shared by warps; rows that lie apart,
# read and stored; gates of two products of single pixels; left factors that are transformed as they are loaded; gated
# products; means of what was convolved; products around depthwise convolutions; sums of rows; recurrent layers;
# poolings whose windows slide; moves in whole accesses, in halves of them and one by one.
LABELS = (
    "conv-portable-direct-f32/row-f32/row",
    "layer-norm-portable-directx4-f32/row-f32/row",
    "layer-norm-many-portable-directx32x2-f32/row-f32/row",
    "instance-norm-portable-direct-f32/channels_last-f32/channels_last",
    "slab-2-portable-slabsx2x4x1x128-f16",
    "slab-2-portable-slabsx3x8x2x256-f16",
    "slab-2-portable-slabsx1x2x1x128-f16",
    "slab-2-data-portable-slabsx3x1x1x128-f16",
    "slab-2-data-portable-direct-f16/channels_last-f16",
    "slab-1-portable-slabsx1x1x7x512-f16",
    "slab-1-portable-slabsx1x8x1x128-f16",
    "slab-rms-portable-slabsx5x1x1x128-f16",
    "slab-groups-portable-slabsx5x2x3x256-f16",
    "slab-groups-portable-slabsx5x4x1x128-f16",
    "slab-groups-portable-direct-f16/row-f16",
    "slab-one-group-portable-slabsx3x8x1x512-f16",
    "slab-many-portable-slabsx1x1x1x128-f16",
    "slab-planes-portable-slabsx",
    "slab-batch-portable-slabsx2x4x1x256-f16",
    "slab-long-portable-slabsx8x8x1x128-f16",
    "slab-2-portable-passesx6x7x128x1-f16",
    "slab-2-portable-passesx2x3x128x2-f16",
    "slab-1-portable-passesx2x20x256x1-f16",
    "slab-rms-portable-passesx5x4x128x1-f16",
    "slab-groups-portable-passesx5x9x256x1-f16",
    "slab-planes-portable-passesx4x2x128x2-f16",
    "slab-long-portable-turnsx1024xsharedx4-f16",
    "turn-narrow-portable-turnsx8xregistersx1-f16",
    "turn-narrow-portable-turnsx32xregistersx3-f16",
    "turn-rms-portable-turnsx64xregistersx7-f16",
    "turn-rms-portable-turnsx128xsharedx30-f16",
    "turn-chain-portable-turnsx64xregistersx4-f16",
    "turn-rms-portable-turnsx64xcachex5-f16",
    "mean-28-of-many-portable-direct-f16/channels_last-f16/channels_last",
    "slide-average-portable-slidingx8x2x1x3x5x2-f16/channels_last-f16/channels_last",
    "slide-average-padded-portable-slidingx4x8x1x1x3x1-f16/channels_last-f16/channels_last",
    "slide-average-portable-slidingx4x1x2x1x13x3-f32/channels_last-f32/channels_last",
    "slide-max-portable-slidingx1x8x1x2x2x1-f16/row-f16/row",
    "slide-max-stem-portable-slidingx8x4x2x2x4x8-f16/channels_last-f16/channels_last",
    "slide-average-ceil-padded-portable-slidingx8x2x1x3x3x2-f16/channels_last-f16/channels_last",
    "slide-max-13-portable-slidingx4x2x1x3x7x4-f16/channels_last-f16/channels_last",
    "slide-max-dilated-portable-slidingx8x4x2x2x11x1-f16/channels_last-f16/channels_last",
    "slide-average-uneven-portable-slidingx8x2x2x3x3x1-f16/channels_last-f16/channels_last",
    "slide-odd-channels-portable-slidingx1x4x1x2x9x5-f16/channels_last-f16/channels_last",
    "slide-many-channels-portable-slidingx8x2x2x3x5x16-f16/channels_last-f16/channels_last",
    "slide-flat-3d-portable-slidingx4x4x1x2x7x2-f16/channels_last-f16/channels_last",
    "slide-norm-2-portable-slidingx8x2x2x3x3x2-f16/channels_last-f16/channels_last",
    "slide-chain-portable-slidingx8x4x1x2x9x1-f16/channels_last-f16/channels_last-shares2",
    "slide-max-stem-portable-slidingx8x2x1x3x2x4-f16/channels_last-f16/channels_last-rows72-between24",
    "heads-odd-portable-direct-f32/row-f32/row",
    "f16-heads-cosine-portable-direct-f16/row-f16/row",
    "f16-heads-rms-turned-portable-direct-f16/row-f16/row",
    "f16-heads-shifted-turned-portable-direct-f16/row-f16/row",
    "f16-rotary-halves-portable-direct-f16/row-f16/row",
    "f16-rotary-neighbours-portable-direct-f16/row-f16/row",
    "f16-rotary-part-portable-direct-f16/row-f16/row",
    "f16-rotary-long-portable-direct-f16/row-f16/row",
    "hardmax-last-portable-direct-f32/row-f32/row",
    "attention-grouped-portable-direct-f32/row-f32/row",
    "attention-hidden-safe-portable-direct-f32/row-f32/row",
    "attention-windows-portable-direct-f32/row-f32/row",
    "f16-attention-packed-portable-direct-f16/row-f16/row",
    "sin-portable-direct-f32/row-f32/row",
    "single-3x3s2-residual-portable-direct-f32/channels_last-f32/channels_last",
    "single-grouped-portable-direct-f32/row-f32/row",
    "single-transposed-portable-direct-f32/row-f32/row",
    "f16-gelu-portable-direct-f16/row-f32/row",
    "f16-stack-wide-portable-direct-f16/channels_last-f16/channels_last",
    "f16-rearrange-pixels-portable-direct-f16/channels_last-f16/channels_last",
    "rearrange-part-portable-direct-f32/channels_last-f32/row",
    "f16-transpose-blocks-portable-direct-f16/row-f16/row",
    "f16-transpose-3-colours-portable-direct-f16/row-f16/row",
    "transpose-to-3-colours-portable-direct-f32/row-f32/row",
    "move-pad-constant-windows-portable-direct-f16/row-f16/row",
    "move-pad-wrap-crops-portable-direct-f16/row-f16/row",
    "move-pad-reflect-odd-portable-direct-f16/channels_last-f16/channels_last",
    "move-add-chain-odd-portable-direct-f16/row-f16/row",
    "move-sub-long-portable-direct-f16/row-f16/row",
    "move-add-chain-pixels-portable-direct-f16/channels_last-f16/channels_last",
    "move-windows-24-portable-direct-f16/row-f16/row",
    "move-turned-far-odd-portable-direct-f16/row-f16/row",
    "move-taken-along-keys-portable-direct-f16/row-f16/row",
    "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16/channels_last-f16/channels_last",
    "form-3x3s2-residual-cutlass-128x64x64xcooperativex2x1-f16/channels_last-f16/channels_last",
    "slices-3x3s2-residual-cutlass-128x32x64xpingpongx2x1x1x4-f16/channels_last-f16/channels_last-shares3",
    "form-1x1-residual-cutlass-256x32x64xcooperativex1x2-f16/channels_last-f16/channels_last",
    "form-1x1-residual-cutlass-128x64x64xpairs-f16/channels_last-f16/channels_last",
    "form-1x1-residual-cutlass-64x64x64xsingle-f16/channels_last-f16/channels_last",
    "halves-short-cutlass-128x128x64xpingpongx1-f16/row-f16/row",
    "halves-full-cutlass-128x128x64xpingpongx1-f16/row-f16/row",
    "halves-together-cutlass-256x128x64xcooperativex1-f16/row-f16/row",
    "form-3x3s2-residual-cutlass-64x96x64xsinglex1x2-f16/channels_last-f16/channels_last",
    "slices-3x3s2-residual-cutlass-64x128x64xsinglex1x2x1x4-f16/channels_last-f16/channels_last-shares3",
    "form-wide-1x1-residual-cutlass-192x192x64xcooperative-f16/channels_last-f16/channels_last",
    "form-wide-cutlass-192x160x64xcooperativex2x1-f16/channels_last-f16/channels_last",
    "resident-residual-cutlass-8x4xturns-f16/channels_last-f16/channels_last-shares3",
    "band-residual-cutlass-192x96x64xcooperativex2-f16/channels_last-f16/channels_last-shares3",
    "band-deep-cutlass-128x128x64xcooperativex2x1x2-f16/channels_last-f16/channels_last",
    "band-valid-cutlass-128x64x32xpingpongx2-f16/channels_last-f16/channels_last",
    "band-3x3s2-cutlass-64x64x64xpingpongx2-f16/channels_last-f16/channels_last",
    "band-stages-cutlass-128x64x64xpingpongx2xrow-f16/channels_last-f16/channels_last-shares3",
    "rows-band-cutlass-64x64x64xpingpongx2-f16/channels_last-f16/channels_last-rows160-between24",
    "bands-8-cutlass-128x64x64xpairsx2xof16-f16/channels_last-f16/channels_last",
    "bands-stages-cutlass-128x64x64xpairsx2xwindowxof16-f16/channels_last-f16/channels_last",
    "bands-32-cutlass-128x64x64xpingpongx2xof32-f16/channels_last-f16/channels_last",
    "bands-24-cutlass-64x96x64xpingpongx2xwhole-f16/channels_last-f16/channels_last-shares3",
    "bands-3x3s2-cutlass-128x64x64xpairsx2xof16-f16/channels_last-f16/channels_last",
    "rolling-8-cutlass-16x64x2x6-f16/channels_last-f16/channels_last-shares3",
    "rolling-cutlass-8x64x2x5-f16/channels_last-f16/channels_last",
    "pair-resident-odd+72-cutlass-14x128x3xturns-f16/channels_last-f16/channels_last",
    "pool-stem+max3-cutlass-8x16x4xturnsx3x1-f32/row-f16/channels_last",
    "pair-form-3x3s2+72-cutlass-128x96x80x64xcooperative-f16/channels_last-f16/channels_last-shares5",
    "dw-form-grouped-depthwisex4x8x8x16x4xregistersx2-f16/channels_last-f16/channels_last",
    "dw-residual-odd-grouped-",
    "dw-form-grouped-rowsx",
    "dw-form-7x7-grouped-diagonalx",
    "dw-7x7-form-grouped-bandedx",
    "dw-7x7-images-grouped-bandedx",
    "dw-7x7-wide-grouped-bandedx",
    "dw-9x3-valid-grouped-bandedx",
    "dw-5x5-scaled-grouped-bandedx",
    "dw-form-grouped-slidingx",
    "dw-3x3d3s2-grouped-slidingx",
    "dw-residual-odd-grouped-slidingx",
    "gr-form-4-grouped-tensor_corex4x7x14x2x1x4x1xsharedx2-f16/channels_last-f16/channels_last",
    "gr-residual-odd-grouped-",
    "gr-24x3s2-grouped-tensor_corex",
    "deep-1d-s2-grouped-deepx",
    "deep-odd-grouped-deepx",
    "deep-form-grouped-deepx",
    "at-mask-keys-attention-warpx",
    "at-form-attention-warpx1x4x1x64-f16/row-f16/row",
    "at-mask-keys-attention-warpgroupx",
    "at-windows-attention-warpx",
    "at-turns-attention-windowsx",
    "at-turns-groups-attention-windowsx",
    "at-windows-attention-warpgroupx",
    "at-causal-attention-warpgroupx",
    "at-form-bias-attention-warpgroupx",
    "at-bias-causal-attention-warpx",
    "at-bias-hidden-attention-warpgroupx",
    "at-form-attention-warpgroupx1x80x1xownx4xquarter",
    "at-form-attention-warpgroupx1x128x2xnext",
    "at-form-attention-warpgroupx3x112x2xturns",
    "at-form-attention-persistentx3x64x2xturns",
    "at-rows-ragged-attention-persistentx",
    "at-peaked-attention-persistentx3x128x3xnext",
    "at-peaked-far-attention-persistentx2x64x2xturns",
    "at-peaked-16-attention-persistentx2x96x3xturns",
    "at-peaked-mask-attention-persistentx4x64x3xown",
    "at-peaked-bias-attention-persistentx3x64x3xnext",
    "at-counted-form-attention-persistentx4x64x2xturnsx1-f16/row-f16/row-there33",
    "at-counted-attention-warpx1x4x2x64-f16/row-f16/row-there33",
    "at-counted-form-attention-warpgroupx3x80x2xturnsx1xfunctions-f16/row-f16/row-there64",
    "rows-affine-16-f16-portable-direct-f16/channels_last-f16/channels_last-between8",
    "rows-batch-norm-7-portable-direct-f32/channels_last-f32/channels_last-between3",
    "rows-concat-16-f16-portable-direct-f16/channels_last-f16/channels_last-rows56-between8",
    "rows-pool-stem+max3-cutlass-16x16x4xturnsx3x1-f16/channels_last-f16/channels_last-rows72",
    "half-heads-portable-tensor_coresx64x64-f16/row-f16/row",
    "half-heads-turned-portable-tensor_coresx32x32-f16/row-f16/row",
    "half-channels-portable-tensor_coresx64x32-f16/row-f16/row",
    "half-both-turned-portable-tensor_coresx64x64-f16/row-f16/row",
    "half-shared-portable-tensor_coresx64x64-f16/row-f16/row",
    "half-odd-portable-tensor_coresx64x128-f16/row-f16/row",
    "half-shallow-portable-tensor_coresx128x128-f16/row-f16/row",
    "half-placed-rows-portable-tensor_coresx128x64-f16/row-f16/row",
    "half-placed-image-portable-tensor_coresx32x32-f16/channels_last-f16/row-shares2",
    "half-placed-image-portable-tensor_coresx32x32-f16/row-f16/channels_last",
    "half-placed-image-portable-direct-f16/channels_last-f16/channels_last",
    "half-placed-turned-portable-tensor_coresx32x64-f16/row-f16/row",
    "half-placed-tokens-portable-tensor_coresx64x64-f16/row-f16/row",
    "half-placed-tokens-portable-tensor_coresx32x32-f16/channels_last-f16/channels_last-shares3",
    "half-placed-tokens-portable-tensor_coresx32x32-f16/row-f16/channels_last",
    "half-placed-line-portable-tensor_coresx32x32-f16/channels_last-f16/row",
    "f16-lstm-everything-portable-direct-f16/row-f16/row",
    "f16-lstm-everything-portable-rowsx4x2-f16/row-f16/row",
    "f16-gru-portable-rowsx2x8-f16/row-f16/row",
    "concat-many-portable-direct-f32/channels_last-f32/channels_last",
    "concat-many-portable-direct-f32/row-f32/row",
    "f16-lstm-everything-portable-tensor_coresx8x256x2x1-f16/row",
    "f16-lstm-coupled-portable-tensor_coresx8x256x1x1-f16/row",
    "f16-gru-after-portable-tensor_coresx8x256x1x1-f16/row",
    "f16-rnn-portable-tensor_coresx8x256x2x2-f16/row",
    "f16-lstm-wide-portable-tensor_coresx16x256x4x1-f16/row",
    "stages-of-16-portable-direct-f32/channels_last-f32/channels_last",
    "stages-of-12-portable-direct-f32/channels_last-f32/channels_last",
    "lanes-of-16-portable-direct-f32/row-f32/row",
    "cumsum-300-portable-direct-f32/row-f32/row",
    "cumsum-1030-portable-direct-i32/row-i32/row",
    "cumsum-3000-portable-direct-i64/row-i64/row",
    "squeeze+gate-portable-directx1-f16/channels_last-f16/channels_last",
    "squeeze-odd+gate-portable-directx1-f16/channels_last-f16/channels_last",
    "squeeze-odd+gate-portable-tensor_coresx8x1x1-f16/channels_last-f16/channels_last",
    "squeeze-2+gate-portable-tensor_coresx8x1x2-f16/channels_last-f16/channels_last",
    "squeeze-4+gate-portable-tensor_coresx16x8x1-f16/channels_last-f16/channels_last",
    "squeeze-between+gate-portable-tensor_coresx16x2x4-f16/channels_last-f16/channels_last",
    "squeeze-deep+gate-portable-tensor_coresx8x8x1-f16/channels_last-f16/channels_last",
    "stem-cutlass-8x32x1-f32/row-f16/channels_last",
    "stem-7x7-cutlass-4x16x1-f32/row-f16/channels_last",
    "stem-two-cutlass-8x56x1-f16/channels_last-f16/channels_last",
    "stem-four-cutlass-4x32x1-f16/channels_last-f16/channels_last-shares3",
    "stem-whole-cutlass-8x32x1-f16/row-f16/channels_last",
    "stem-whole-wide-cutlass-16x56x1-f32/row-f16/channels_last",
    "stem-whole-far-cutlass-4x8x1-f32/row-f16/channels_last",
    "stem-whole-many-cutlass-4x8x1-f16/channels_last-f16/channels_last",
    "rows-stem-cutlass-4x16x1-f16/channels_last-f16/channels_last-between5",
    "squeeze-wide+gate-portable-directx3-f16/channels_last-f16/channels_last",
    "prologue-cutlass-128x128x64xpingpongxaffine-f16/channels_last-f16/channels_last",
    "gate-7-cutlass-256x64x64xcooperativexgatex8-f16/channels_last-f16/channels_last",
    "rows-prologue-cutlass-128x96x128xcooperativexaffine-f16/channels_last-f16/channels_last-rows80-between24",
    "mean-3x3-grouped-rowsx",
    "mean-odd-grouped-depthwisex",
    "mean-7-grouped-slidingx",
    "chain-3x3s2+24-grouped-chainx",
    "chain-odd-residual+23-grouped-chainx",
    "chain-wide+328-grouped-chainx",
    "inverted-3x3s2+24-grouped-invertedx",
    "inverted-odd+23-grouped-invertedx",
    "expanded-3x3s2+dw-grouped-expandedx",
    "expanded-odd-channels+dw-grouped-expandedx",
    "expanded-3x3s2+dw+mean-grouped-expandedx",
    "normed-7x7-grouped-normedx2x1x32x",
    "normed-1d-grouped-normedx",
    "sliced-norm-768+variance-kept-cutlass-64x96x128xpingpongx1x6-f16/row-f16/row-f16/row",
    "sliced-norm-1160+rms-unbiased-cutlass-64x64x128xpingpongx1x2-f16/row-f16/row",
    "memory-norm-768+variance-kept-cutlass-192x192x64xcooperativex4xmemory-f16/row-f16/row-f16/row",
    "memory-norm-384+rms-unbiased-cutlass-128x128x64xpingpongx3xmemory-f16/row-f16/row",
    "prenorm-far-cutlass-192x192x64xcooperativex1-f16/row-f16/row",
    "prenorm-rms-cutlass-128x64x32xpingpongx1-f16/row-f16/row",
    "swiglu-biases-cutlass-64x64x64xsinglex8-f16/row-f16/row-rows128-between16",
    "geglu-halves-cutlass-128x64x64xcooperativex8-f16/row-f16/row",
    "glu-neighbours-cutlass-64x64x64xpingpongx8-f16/row-f16/row",
    "form-cutlass-128x128x64xpairsx8-f16/row-f16/row",
    "form-cutlass-128x128x32x64x64x4x8-f16/row-f16/row",
    "wavenet-cutlass-64x64x64xpingpongx8-f16/channels_last-f16/channels_last",
    "window-cutlass-64x64x64x32x32x5x8-f16/channels_last-f16/channels_last",
    "deep-cutlass-64x64x128xpingpongx8x1x4-f16/row-f16/row",
    "sum-bert-portable-directx4xearly-f16/row-f16/row",
    "sum-wide-portable-directx256xearly-f16/row-f16/row",
    "sum-gpt-portable-directx32xearly-f16/row-f16/row-f16/row",
    "sum-vit-f32-portable-directx16xearly-f32/row-f32/row-f32/row",
    "rows-pair+56-cutlass-128x64x64x64x32x64x64x3xregisters-f16",
    *READ_APART,
)

# The same in bf16: each form in which a kernel multiplies, rounds and stores.
IN_BF16 = (
    "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16",
    "form-1x1-residual-cutlass-128x64x64xpairs-f16",
    "form-wide-cutlass-192x160x64xcooperativex2x1-f16",
    "pool-stem+max3-cutlass-8x16x4xturnsx3x1-f32",
    "stem-whole-7x7-cutlass-4x16x1-f16/channels_last",
    "pair-resident-odd+72-cutlass-14x128x3xturns-f16",
    "band-7x1-cutlass-64x64x64xpingpongx2-f16",
    "bands-16-cutlass-256x64x64xcooperativex2xof16-f16",
    "rolling-8-cutlass-16x64x2x6-f16",
    "gate-7-cutlass-256x64x64xcooperativexgatex8-f16",
    "prenorm-residual-cutlass-64x128x64xpingpongx1-f16",
    "geglu-tanh-cutlass-64x64x64xpingpongx8-f16",
    "dw-residual-odd-grouped-",
    "dw-7x7-images-grouped-bandedx",
    "gr-form-4-grouped-tensor_corex4x7x14x2x1x4x1xsharedx2-f16",
    "deep-form-grouped-deepx",
    "mean-3x3-grouped-rowsx",
    "mean-3x3-grouped-slidingx",
    "inverted-3x3+24-grouped-invertedx2x8x1x3x48x2-f16",
    "normed-scale-grouped-normedx",
    "at-form-attention-warpx1x4x1x64-f16",
    "sum-vit-portable-directx16xearly-f16",
    "slab-groups-chain-portable-slabsx3x2x2x256-f16",
    "slab-groups-chain-portable-passesx3x4x128x3-f16",
    "at-form-attention-warpgroupx1x80x1xownx4xquarter",
    "at-peaked-attention-persistentx4x64x2xturns",
    "half-both-turned-portable-tensor_coresx64x64-f16",
    "squeeze-wide+gate-portable-tensor_coresx8x8x4-f16",
    "stem-grey-cutlass-4x16x1-f32/row-f16/channels_last",
    "slide-average-chain-portable-slidingx8x2x1x3x4x1-f16/channels_last-f16",
    "slide-max-5-portable-slidingx8x4x2x2x3x3-f16/channels_last-f16",
    "f16-lstm-wide-portable-tensor_coresx8x256x4x4-f16/row",
)


def chosen() -> list[Trial]:
    known = small_trials()
    found = [next(trial for name, trial in known.items() if name.startswith(label)) for label in (*LABELS, *IN_BF16)]
    return found[: len(LABELS)] + [in_bf16(trial) for trial in found[len(LABELS) :]]


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    chain = probe(("cxx", "nvcc", "cutlass"))
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in chain.diagnostics()]}")
    with shared_folder("emulated-kernels") as folder:
        if not (folder / "kernels.so").exists():
            write(chosen(), folder, few=True)
            runtime = emulated.link_flags()
            compile_all(folder, Path(nvcc), Path(cutlass).parent, emulated.compile_flags(), runtime)
    return Library(folder)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("index", range(len(LABELS) + len(IN_BF16)), ids=[*LABELS, *(f"bf16-{x}" for x in IN_BF16)])
def test_agrees_with_numpy(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, seed: int | None) -> None:
    if seed is not None:
        # So few that each works through several tiles. Blocks that wait for each other are no whole groups.
        stated = dict(library.trials[index].candidate.parameters)
        few = 3 * int(stated["norm"]) - 1 if stated.get("through") == "memory" else 3
        monkeypatch.setenv("EMULATED_MULTIPROCESSORS", str(few))
        monkeypatch.setenv("EMULATED_SEED", str(seed))
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0


@pytest.mark.parametrize("index", [i for i, label in enumerate(LABELS) if label.startswith("slide-")])
def test_poolings_have_what_is_no_number_and_infinities_where_numpy_has_them(library: Library, index: int) -> None:
    def values(layer: Layer) -> list[Array]:
        found = values_of(layer)
        chance = np.random.default_rng(index).random(found[0].shape)
        for value, below in ((np.nan, 0.06), (np.inf, 0.04), (-np.inf, 0.02)):
            found[0] = np.where(chance < below, value, found[0]).astype(found[0].dtype)
        return found

    library.forget()
    with mock.patch.object(gpu_harness, "values_of", values), np.errstate(invalid="ignore"):
        outcome = library.run(index)
    library.forget()
    assert outcome.message == ""
    assert outcome.error <= 1.0


def test_blocks_that_wait_for_each_other_are_refused_where_they_have_no_room(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "3")
    outcome = library.run(next(index for index, label in enumerate(LABELS) if label.startswith("memory-norm-768")))
    assert outcome.message == (
        "could not launch a normalised product: 4 blocks wait for each other, and the device runs one on each of 3"
        " multiprocessors"
    )


NORMALISES = next(index for index, label in enumerate(LABELS) if label.startswith("prenorm-far"))


@given(kinds)
@example([(kind, distance, seed) for seed, kind in enumerate(KINDS) for distance in (1000.0, -30.0, 0.5)])
@settings(max_examples=10, deadline=None)
def test_rows_are_normalised_as_they_are_loaded_wherever_they_lie(
    library: Library, rows: list[tuple[str, float, int]]
) -> None:
    """Also where the first step of a row, which the pivot is of, lies far from all others."""

    def values(layer: Layer) -> list[Array]:
        found = values_of(layer)
        shape = found[0].shape
        made = [row(kind, shape[-1], 64, distance, seed) for kind, distance, seed in rows]
        found[0] = np.resize(np.stack(made), shape).astype(found[0].dtype)
        return found

    library.forget()
    with mock.patch.object(gpu_harness, "values_of", values), np.errstate(invalid="ignore"):
        outcome = library.run(NORMALISES)
    library.forget()
    assert outcome.message == ""
    assert outcome.error <= 1.0
