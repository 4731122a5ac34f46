"""Which kernels of `gpu_layers.py` run on the emulated GPU with every run of the tests, by how their labels begin.
`emulated_further.py` has those of the longer run."""

from __future__ import annotations

READ_APART = tuple(
    f"{name}-between24"
    for name in (
        "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16/channels_last-f16/channels_last",
        "form-3x3s2-residual-cutlass-128x64x64xcooperativex2x1-f16/channels_last-f16/channels_last",
        "form-1x1-residual-cutlass-256x32x64xcooperativex1x2-f16/channels_last-f16/channels_last",
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
# channels, odd ones in whatever tile; products in fp32, in tiles; attention, keys shared by warps; the same over
# channels; rows that lie apart, read and stored; gates of two products of single pixels; left factors that are
# transformed as they are loaded; gated products; means of what was convolved; products around depthwise convolutions;
# sums of rows; recurrent layers; poolings whose windows slide; images that are resampled; planes of both in shared
# memory; integers in whole accesses; reductions, places and running sums of rows that begin anywhere; moves in whole
# accesses, in halves of them and one by one; axes in another order, through tiles.
LABELS = (
    "conv-portable-direct-f32/row-f32/row",
    "layer-norm-portable-directx4-f32/row-f32/row",
    "instance-norm-portable-direct-f32/channels_last-f32/channels_last",
    "slab-2-portable-slabsx2x4x1x128-f16",
    "slab-2-portable-heldx128x2x2x4x1-f16",
    "slab-2-portable-fittedx128x1x2x7x1-f16",
    "slab-2-portable-bothx64x4x2x4x2x2-f16",
    "batch-rms-portable-batchesx8x288x4-f16",
    "slab-2-portable-passesx6x7x128x1-f16",
    "turn-chain-portable-turnsx64xregistersx4-f16",
    "staged-333-portable-stagedx32x8x256-f16/row-f16/row",
    "staged-softmax-197-portable-stagedx8x32x128-f16/row-f16/row",
    "staged-lrn-portable-stagedx4x32x128-f16/row-f16/row",
    "beside-lrn-portable-registersx4x32-f16/row-f16/row",
    "groups-softmax-portable-groupsx96x4x2x2x2-f16/row-f16/row",
    "images-odd-portable-imagesx2x256x189-f16",
    "registers-33-portable-aheadx128x12x33x2x1x3-f16",
    "mean-28-of-many-portable-direct-f16/channels_last-f16/channels_last",
    "fold-outer-portable-runsx4x256x2-f16/row-f16/row",
    "fold-pixels-portable-pixelsx256x7-f16/row-f16/row",
    "fold-class-even-portable-columnsx4x3-f16/row-i64/row",
    "fold-several-portable-sortedx1024x1-f16/row-i64/row",
    "fold-chosen-portable-selectedx32x5x3-f16/row-i64/row",
    "fold-few-portable-fewx16x8x4x2-f16/row-i64/row",
    "fold-parted-portable-partedx1000x64x16x4x128x256x8x256x5x4x256x1024x2-f16/row-i64/row",
    "fold-counted-portable-countedx256-f16/row-i64/row",
    "fold-running-portable-runsx256x1-f16/row-f16/row",
    "fold-running-down-portable-columnsx8x4-f16/row-f16/row",
    "slide-average-portable-slidingx8x2x1x3x5x2-f16/channels_last-f16/channels_last",
    "slide-max-portable-slidingx1x8x1x2x2x1-f16/row-f16/row",
    "resample-linear-portable-slidingx8x1x1x5-f16/channels_last-f16/channels_last-rows40-between8",
    "resample-cubic-planes-portable-stagedx2x1x2x8-f16/row-f16/row",
    "resample-cubic-planes-portable-streamedx4x1x2x4x8x2-f16/row-f16/row",
    "resample-cubic-planes-portable-tensor_coresx1x2x4x2x5-f16/row-f16/row",
    "slide-planes-average-portable-stagedx2x1x3x6-f16/row-f16/row",
    "wide-quantise-planes-portable-widex2-f16/row-u8/row",
    "heads-odd-portable-direct-f32/row-f32/row",
    "f16-rotary-halves-portable-pairsx1-f16/row-f16/row",
    "hardmax-last-portable-direct-f32/row-f32/row",
    "attention-grouped-portable-direct-f32/row-f32/row",
    "f16-attention-packed-portable-direct-f16/row-f16/row",
    "single-transposed-portable-direct-f32/row-f32/row",
    "f16-gelu-portable-direct-f16/row-f32/row",
    "f16-stack-wide-portable-direct-f16/channels_last-f16/channels_last",
    "transpose-to-3-colours-portable-direct-f32/row-f32/row",
    "move-pad-constant-windows-portable-direct-f16/row-f16/row",
    "permute-scores-portable-permuted_wordsx1x8x21x0x1x9-f16/row-f16/row-rows45-between24",
    "permute-images-portable-permuted",
    "flat-joined-images-portable-flat_rowsx4x2-f16/row-f16/row",
    "tiled-hidden-portable-tiledx3x2x361x1-bool/row-f16/row",
    "flat-mask-of-pairs-portable-flatx4x3x81-f16/row-f16/row",
    "scatter-rows-portable-linesx2x72",
    "scatter-many-portable-staged_linesx8x4x48-f16/row-f16/row",
    "sliced-residual-cutlass-64x64x8-f16/channels_last-f16/channels_last",
    "thin-residual-cutlass-32x8xahead-f16/channels_last-f16/channels_last-shares3",
    "thin-cutlass-16x8xwhole-f16/channels_last-f16/channels_last",
    "sliced-gate-cutlass-64x64x4xgatex4-f16/channels_last-f16/channels_last",
    "image-13-cutlass-64x64x64xpingpong-f16/channels_last-f16/channels_last",
    "rows-band-cutlass-64x64x64xpingpongx2-f16/channels_last-f16/channels_last-rows160-between24",
    "pair-few-56+72-cutlass-56x32x72x16x8-f16/channels_last-f16/channels_last",
    "pool-stem+max3-cutlass-8x16x4xturnsx3x1-f32/row-f16/channels_last",
    "groups-row-cutlass-128x64x32xpingpongx1-f16/channels_last-f16/channels_last-shares3",
    "groups-bands-cutlass-64x64x64xpingpongx2x1-f16/channels_last-f16/channels_last-shares3",
    "vol-3x3x3-grouped-volumex",
    "deep-form-grouped-deepx",
    "at-form-attention-warpx1x4x1x64-f16/row-f16/row",
    "at-mask-keys-attention-warpgroupx",
    "at-turns-groups-attention-windowsx",
    "at-few-attention-spreadx",
    "at-cap-window-mask-attention-persistentx",
    "rows-sum-16-f16-portable-direct-f16/channels_last-f16/channels_last-rows24-between8",
    "rows-concat-16-f16-portable-direct-f16/channels_last-f16/channels_last-rows56-between8",
    "channel-attention-alike-portable-tensor_coresx2-f16/row-f16/row",
    "concat-many-portable-direct-f32/channels_last-f32/channels_last",
    "f16-lstm-everything-portable-tensor_coresx8x256x2x1-f16/row",
    "lanes-of-16-portable-direct-f32/row-f32/row",
    "cumsum-3000-portable-direct-i64/row-i64/row",
    "squeeze-odd+gate-portable-directx1-f16/channels_last-f16/channels_last",
    "stem-cutlass-8x32x1-f32/row-f16/channels_last",
    "channels-3x3-cutlass-64x32x64xsingle-f16",
    "volume-apart-cutlass-64x64x64xpingpongx1",
    "shuffle-2x2+pixels2x2-cutlass-64x128x32xpingpongx2x1",
    "kept-3x3+leaky_relu-cutlass-64x64x64xpingpongx1-",
    "prologue-cutlass-64x64x64xpingpongxaffine-f16/channels_last-f16/channels_last",
    "sliced-norm-768+variance-kept-cutlass-64x96x128xpingpongx1x6-f16/row-f16/row-f16/row",
    "memory-norm-384+rms-unbiased-cutlass-128x128x64xpingpongx3xmemory-f16/row-f16/row",
    "prenorm-far-cutlass-64x96x64xpingpongx1-f16/row-f16/row",
    "swiglu-biases-cutlass-64x64x64xsinglex8-f16/row-f16/row-rows128-between16",
    "window-cutlass-64x64x64x32x32x5x8-f16/channels_last-f16/channels_last",
    "deep-cutlass-64x64x128xpingpongx8x1x4-f16/row-f16/row",
    "sum-bert-portable-directx4xearly-f16/row-f16/row",
    *READ_APART,
)

# The same in bf16: each form in which a kernel multiplies, rounds and stores.
IN_BF16 = (
    "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16",
    "at-peaked-attention-persistentx4x64x2xturns",
    "slide-average-chain-portable-slidingx8x2x1x3x4x1-f16/channels_last-f16",
)

# Whose sources `test_families_bf16.py` compares, and those that other GPUs have too.
WRITTEN_IN_BF16 = (
    "form-1x1-residual-cutlass-128x64x64xpairs-f16",
    "slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16",
    "narrow-1x1-cutlass-",
    "resident-stem-cutlass-",
    "resident-residual-cutlass-8x4xturns-f16",
    "pair-resident-odd+72-cutlass-14x128x3xturns-f16",
    "pair-form-3x3s2+72-cutlass-128x96x80x64xcooperative-f16",
    "pair-registers+56-cutlass-",
    "pool-stem+max3-cutlass-8x16x4xturnsx3x1-f16",
    "prologue-cutlass-128x128x64xpingpongxaffine-f16",
    "gate-7-cutlass-256x64x64xcooperativexgatex8-f16",
    "dw-form-grouped-depthwise",
    "dw-form-grouped-rowsx",
    "gr-form-4-grouped-tensor_core",
    "deep-form-grouped-deepx",
    "mean-3x3-grouped-rowsx",
    "chain-3x3+24-grouped-chainx",
    "inverted-3x3+24-grouped-invertedx",
    "rolling-cutlass-",
    "at-form-attention-warpx",
    "at-form-attention-warpgroupx",
)
PLAIN_IN_BF16 = (
    "dw-form-grouped-",
    "chain-3x3+24-grouped-",
    "gr-form-4-grouped-",
    "at-form-attention-warpx",
    "narrow-1x1-cutlass-",
    "3x3s2-cutlass-",
)

OFTEN = (*LABELS, *IN_BF16, *WRITTEN_IN_BF16, *PLAIN_IN_BF16)
"""Of which every run of the tests has trials."""
