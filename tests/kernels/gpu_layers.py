"""What is tried on a GPU: the CPU's table of layers, tensor-core kernels over every case, ResNet-50's layers."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import CLIP, LAYERS, RELU, stage
from function_layers import PARAMETERS
from gpu_apart import apart
from gpu_asked import asked, asked_for
from gpu_atomics import atomic_trials
from gpu_attention_layers import attention_trials, counted_trials
from gpu_averages import averages
from gpu_bands import band_trials, grouped_band_trials
from gpu_bf16 import in_bf16
from gpu_channel_attention import channel_attention
from gpu_channels import channel_trials
from gpu_chosen import chosen_products
from gpu_copies import copies
from gpu_crossed import crossed_trials
from gpu_depthwise_chains import (
    averaged_trials,
    chain_trials,
    inverted_strips_trials,
    inverted_trials,
    quads_trials,
    strips_trials,
)
from gpu_flat import flat_trials
from gpu_flat_rows import flat_row_trials
from gpu_folded_formulas import folded_formulas
from gpu_folds import fold_trials, short_scan_trials
from gpu_forms import (
    FORMS,
    SLICED,
    WIDE_FORMS,
    in_every_order,
    in_slices,
    resident,
    resident_wide,
    together,
    turns,
    with_tiles,
)
from gpu_formulas import formulas
from gpu_gated import gated_trials
from gpu_grouped_layers import grouped_trials
from gpu_groups import group_trials
from gpu_half_products import half_products
from gpu_harness import Trial, trials_of
from gpu_head_pairs import head_pairs
from gpu_image_numbers import image_number_trials
from gpu_images import image_trials
from gpu_kept import kept_trials
from gpu_lines import line_trials
from gpu_means import mean_trials
from gpu_moments import moment_trials
from gpu_moves import far_trials, move_trials
from gpu_normed import normed_trials
from gpu_norms import norm_trials, sliced_norm_trials
from gpu_pair_layers import PAIRS, pair_trials
from gpu_pair_products import pair_products
from gpu_pair_sums import pair_sums
from gpu_pairs import pooling, ranked, with_pooled_tiles
from gpu_patches import patch_sums
from gpu_permuted import permuted_trials
from gpu_placed_rows import placed_rows
from gpu_plane_norms import plane_norm_trials
from gpu_pools import plain, sliding_pools, staged_pools
from gpu_prenorm import prenorm_trials
from gpu_products import RESIDUAL, SILU, TOLERANCE, conv, matmul
from gpu_prologues import prologues
from gpu_quantised import quantised_trials
from gpu_recurrent import of_rows
from gpu_regions import region_trials
from gpu_resample import resample_trials
from gpu_resnet50 import resnet50
from gpu_rolling import rolling_trials
from gpu_row_layers import row_trials
from gpu_row_sums import row_sums
from gpu_scans import scan_trials
from gpu_scatters import scatter_trials
from gpu_separated import separated_pools
from gpu_shuffles import shuffle_trials
from gpu_slabs import slabs
from gpu_sliced import sliced_trials
from gpu_squeezes import squeezes
from gpu_staged import shared_line_trials, staged_trials
from gpu_stems import stem_trials
from gpu_thin import thin_trials
from gpu_tiled import tiled_trials
from gpu_turned_chains import turned_trials
from gpu_volumes import volume_trials
from shared_folders import entered

from bolt_build.digest import digest
from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.recurrent.recurrent import Recurrent
from bolt_build.planner.passes.fuse.epilogues import IN_KERNEL

SHAPES = [
    conv("1x1", (2, 64, 13, 11), 64, (1, 1)),
    conv("1x1-no-bias", (2, 64, 13, 11), 64, (1, 1), bias=False),
    conv("1x1s2", (2, 64, 13, 11), 96, (1, 1), 2),
    conv("3x3", (2, 64, 13, 11), 64, (3, 3)),
    conv("3x3-no-bias", (1, 32, 9, 9), 32, (3, 3), epilogue=(), bias=False),
    conv("3x3s2", (3, 40, 14, 15), 72, (3, 3), 2),
    conv("3x3d2", (1, 64, 14, 14), 64, (3, 3), dilation=2),
    conv("5x3-asymmetric", (2, 16, 12, 10), 24, (5, 3), 2, ((1, 2), (3, 0))),
    conv("1x7", (1, 32, 17, 17), 48, (1, 7)),
    conv("valid", (1, 16, 9, 8), 16, (3, 3), pads=((0, 0), (0, 0))),
    conv("1d", (2, 24, 50), 40, (5,), 2),
    conv("deep", (1, 512, 7, 7), 512, (3, 3)),
    *(conv(f"channels-{c}", (2, c, 9, 10), 16, (3, 3)) for c in (9, 10, 12, 20, 33)),
    *(conv(f"channels-{c}-1x1", (2, c, 9, 10), 16, (1, 1)) for c in (1, 3, 6, 10)),
    *(conv(f"filters-{k}", (1, 16, 9, 9), k, (3, 3)) for k in (1, 2, 4, 7, 10, 12, 1000)),
    *(conv(f"filters-{k}-1x1", (1, 16, 9, 9), k, (1, 1)) for k in (1, 2, 4, 7, 10, 12, 1000)),
    *(conv(f"thin-{c}s{s}-{k}", (2, c, 21, 18), 24, (k, k), s) for c in (1, 3, 4, 5, 8) for s, k in ((1, 3), (2, 7))),
    *(conv(f"thin-folded-{k}", (2, 3, 21, 18), 24, (k, k), 2) for k in (2, 3, 5)),
    conv("thin-stem", (1, 3, 224, 224), 64, (7, 7), 2),
    conv("thin-valid", (1, 3, 29, 31), 32, (11, 11), 4, ((0, 0), (0, 0))),
    conv("thin-asymmetric", (2, 3, 20, 23), 32, (3, 5), 2, ((0, 1), (1, 3))),
    conv("thin-1d", (2, 2, 50), 16, (5,), 2),
    conv("grouped", (2, 32, 9, 9), 64, (3, 3), groups=4),
    conv("depthwise", (2, 40, 9, 9), 40, (3, 3), groups=40),
    conv("residual", (2, 64, 13, 11), 64, (1, 1), epilogue=RESIDUAL),
    conv("residual-3x3", (2, 64, 13, 11), 64, (3, 3), epilogue=RESIDUAL),
    conv("residual-odd", (2, 24, 7, 5), 31, (3, 3), epilogue=RESIDUAL),
    conv("relu-residual-clip", (1, 16, 9, 9), 32, (3, 3), epilogue=(RELU, stage("add", 3), CLIP)),
]

EPILOGUES = [
    *(
        conv(f"{name}", (2, 16, 9, 9), 32, kernel, epilogue=(EpilogueOp(Activation(name, *PARAMETERS.get(name, ()))),))
        for name in IN_KERNEL
        for kernel in ((1, 1),)
    ),
    conv("silu-3x3", (2, 16, 9, 9), 32, (3, 3), epilogue=(EpilogueOp(Activation("silu")),)),
    *(conv(f"residual-{f}", (1, 16, 9, 9), 32, (1, 1), epilogue=(stage(f, 3),)) for f in ("sub", "mul", "max", "min")),
]


MATMULS = [
    *(
        matmul(f"matmul-{m}x{n}x{k}-{transposed}", (m, k), n, transposed, ())
        for transposed in (False, True)
        for m, n, k in ((1, 1000, 512), (32, 1000, 512), (7, 33, 45))
    ),
    matmul("matmul-rank-3", (2, 9, 64), 40, False, (RELU,)),
]

BANDWIDTH = [
    Layer("max-pool", Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), (Input((32, 64, 112, 112)),)),
    Layer("max-pool-vgg", Pool("max", (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), (Input((32, 64, 224, 224)),)),
    Layer("global-average", Reduce("mean", (2, 3)), (Input((32, 2048, 7, 7)),)),
    Layer("add-relu", Binary("add"), (Input((32, 256, 56, 56)), Input((32, 256, 56, 56))), (RELU,)),
    Layer("relu", Activation("relu"), (Input((32, 256, 56, 56)),)),
    Layer("silu", Activation("silu"), (Input((32, 256, 56, 56)),)),
    Layer("softmax", Softmax(1), (Input((32, 1000)),)),
    Layer("lrn", Lrn(5, 1e-4, 0.75, 1.0), (Input((32, 64, 56, 56)),)),
    Layer("concat", Concat(1), (Input((32, 64, 56, 56)), Input((32, 96, 56, 56)), Input((32, 32, 56, 56)))),
]  # fmt: skip


def _single(layer: Layer) -> Layer:
    return replace(layer, precision=DType.F32, tolerance=2e-5, label=f"single-{layer.label}")


# Products in fp32, in tiles: odd extents, groups, factors stored either way, batches, tiles of both sizes.
SINGLE = [
    *map(
        _single,
        (
            conv("3x3s2-residual", (2, 48, 27, 23), 72, (3, 3), 2, epilogue=RESIDUAL),
            conv("5x3-asymmetric", (2, 17, 12, 10), 40, (5, 3), 2, ((1, 2), (3, 0))),
            conv("grouped", (2, 64, 9, 11), 96, (3, 3), groups=4),
            conv("1d", (2, 24, 50), 40, (5,), 2),
            conv("large-tiles", (4, 24, 64, 64), 256, (1, 1)),
            matmul("matmul", (33, 46), 40, True, (RELU,)),
        ),
    ),
    Layer("single-batched", MatMul(), (Input((2, 3, 20, 35)), Input((2, 3, 35, 17))), (), DType.F32, 2e-5),
    Layer("single-transposed", MatMul(True, True), (Input((3, 35, 20)), Input((17, 35))), (), DType.F32, 2e-5),
]


def forms() -> list[Trial]:
    """Clusters, orders of tiles, and slices of the depth: with strides, odd sizes, residuals, activations."""
    found = []
    for layer in (
        conv("form-3x3", (3, 64, 13, 11), 96, (3, 3)),
        conv("form-3x3s2-residual", (3, 48, 27, 23), 72, (3, 3), 2, epilogue=RESIDUAL),
        conv("form-1x1", (3, 136, 13, 11), 96, (1, 1)),
        conv("form-1x1-residual", (3, 136, 13, 11), 72, (1, 1), epilogue=RESIDUAL),
    ):
        found += with_tiles(layer, FORMS)
    for layer in (
        conv("form-wide", (3, 96, 19, 17), 264, (3, 3), 2),
        conv("form-wide-1x1-residual", (3, 96, 19, 17), 264, (1, 1), epilogue=RESIDUAL),
    ):
        found += with_tiles(layer, WIDE_FORMS)
    found += with_resident_weights() + with_other_windows() + with_pooling()
    many = (4, 64, 31, 29)
    found += in_every_order(conv("order-3x3", many, 520, (3, 3)), turns(64, 64, 64))
    found += in_every_order(conv("order-1x1-residual", many, 520, (1, 1), epilogue=RESIDUAL), turns(64, 64, 64, (2, 1)))
    found += in_every_order(conv("order-1x1", many, 1032, (1, 1)), together(128, 64, 64))
    for layer in (
        conv("slices-3x3", (1, 256, 7, 7), 120, (3, 3), epilogue=(EpilogueOp(Activation("silu")),)),
        conv("slices-3x3s2-residual", (2, 256, 9, 7), 72, (3, 3), 2, epilogue=RESIDUAL),
        conv("slices-1x1-residual", (2, 2048, 7, 5), 72, (1, 1), epilogue=RESIDUAL),
        conv("slices-1x1-no-bias", (1, 1536, 7, 7), 64, (1, 1), epilogue=(), bias=False),
        matmul("slices-matmul", (9, 2048), 1000, True, ()),
    ):
        found += in_slices(layer, SLICED)
    for layer in (
        conv("slices-odd-filters", (1, 256, 7, 7), 51, (3, 3), epilogue=RESIDUAL),
        matmul("slices-matmul-odd", (7, 1032), 33, False, (RELU,)),
        conv("slices-copied", (2, 1025, 5, 5), 40, (1, 1)),
    ):
        found += in_slices(layer, [tile for tile in SLICED if tile.group == "warps"])
    return found


def with_resident_weights() -> list[Trial]:
    """Every height and depth of the tiles, more tiles than multiprocessors, ragged images, residuals, every kind of
    padding, groups of channels; and rows of the output apart."""
    found = []
    for layer, tiles in (
        (conv("resident", (2, 64, 17, 23), 64, (3, 3)), resident(4, 4, 8, 14, 16)),
        (conv("resident-residual", (2, 64, 17, 23), 72, (3, 3), epilogue=RESIDUAL), resident(4, 4, 8, 14, 16)),
        (conv("resident-48", (3, 48, 33, 40), 200, (3, 3), epilogue=SILU), resident(3, 8, 14)),
        (conv("resident-copied", (2, 20, 9, 10), 72, (3, 3), epilogue=RESIDUAL), resident(2, 4, 8)),
        (conv("resident-16", (2, 16, 30, 31), 136, (3, 3), epilogue=(), bias=False), resident(1, 8, 14)),
        (conv("resident-many", (7, 64, 90, 70), 64, (3, 3), epilogue=RESIDUAL), resident(4, 8, 14)),
        (conv("resident-valid", (2, 64, 20, 19), 128, (3, 3), pads=((0, 0), (0, 0))), resident(4, 14)),
        (conv("resident-far", (2, 64, 20, 19), 64, (3, 3), pads=((2, 0), (1, 3))), resident(4, 16)),
    ):
        found += with_tiles(layer, tiles)
    apart = with_tiles(conv("rows-resident", (3, 64, 17, 23), 72, (3, 3), epilogue=RESIDUAL), resident(4, 14))
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in apart if t.shared is None]


def with_other_windows() -> list[Trial]:
    """Weights in registers of stems, whose windows are folded or hold two results, and of windows of other extents."""
    found = []
    for layer, tiles in (
        (conv("resident-stem", (3, 3, 75, 91), 64, (7, 7), 2), resident(4, 14) + resident_wide(4, 14, 16)),
        (conv("resident-beside", (3, 3, 33, 38), 64, (3, 3)), resident(1, 8, 16) + resident_wide(1, 14, 16, both=True)),
        (conv("resident-thin", (2, 3, 33, 37), 40, (3, 3), epilogue=SILU), resident(2, 16) + resident_wide(2, 16)),
        (conv("resident-5x5", (2, 16, 21, 18), 72, (5, 5)), resident(1, 4, 8)),
        (conv("resident-1x5", (2, 64, 21, 34), 64, (1, 5)), resident(4, 8)),
        (conv("resident-2x2", (2, 64, 21, 34), 64, (2, 2), pads=((0, 1), (1, 0))), resident_wide(4, 14, 16)),
    ):
        found += with_tiles(layer, tiles)
    return found


def with_pooling() -> list[Trial]:
    """Stems and other convolutions with the pooling of their maxima, in every tile: odd sizes, ragged strips, more of
    them than warpgroups, groups of channels, rounding up, padding behind alone, other functions."""
    rounds_up = {k: Pool("max", (k, k), (2, 2), (k - 2,) * 2, (k - 2,) * 2, (1, 1), ceil_mode=True) for k in (2, 3)}
    uneven = {k: Pool("max", (k, k), (2, 2), (k - 2,) * 2, (k - 1, 0), (1, 1)) for k in (2, 3)}
    strips, tiles = ((16, 16), (14, 16), (8, 16), (4, 16)), ((14, 8), (16, 8), (8, 8))
    found = []
    for layer, shapes in (
        (pooling(conv("pool-stem", (1, 3, 75, 91), 64, (7, 7), 2), 3), strips),
        (pooling(conv("pool-stem-many", (37, 3, 70, 131), 24, (7, 7), 2), 3), strips[:1]),
        (pooling(conv("pool-stem-72", (3, 4, 64, 64), 72, (5, 5), 2, epilogue=SILU), 3), strips[:2]),
        (pooling(conv("pool-3x3", (3, 64, 33, 40), 64, (3, 3), bias=False), 3, rounds_up[3]), strips[2:]),
        (pooling(conv("pool-2", (3, 64, 29, 39), 64, (3, 3)), 2), tiles),
        (pooling(conv("pool-2-uneven", (2, 64, 29, 38), 64, (3, 3)), 2, uneven[2]), tiles[:1]),
        (pooling(conv("pool-3x3-uneven", (2, 64, 33, 40), 64, (3, 3), bias=False), 3, uneven[3]), strips[2:3]),
        (pooling(conv("pool-2-up", (1, 40, 29, 39), 136, (3, 3), epilogue=()), 2, rounds_up[2]), tiles[:2]),
        (pooling(conv("pool-2-many", (9, 64, 120, 66), 64, (3, 3)), 2), tiles[:1]),
        (pooling(conv("pool-thin", (2, 3, 33, 37), 40, (3, 3)), 2), (*tiles, (14, 16), (16, 16))),
    ):
        found += with_pooled_tiles(layer, shapes)
    return found


def of_warps() -> list[Trial]:
    """What GPUs before Hopper run too: products, pairs of them, slices, and plain loops over half-precision layers."""
    found = []
    for layer in (*SHAPES, *EPILOGUES, *MATMULS):
        found += trials_of(layer, "cutlass", 2) + trials_of(layer, "portable")
    for layer in PAIRS:
        found += ranked(layer, warpgroups=False, count=2)
    found += sliding_pools() + staged_pools() + fold_trials() + squeezes() + row_sums() + slabs() + staged_trials()
    found += image_trials() + grouped_trials() + averages() + chain_trials() + inverted_trials() + strips_trials()
    found += quads_trials() + turned_trials() + inverted_strips_trials()
    found += normed_trials() + half_products() + chosen_products()
    found += atomic_trials() + plane_norm_trials() + short_scan_trials()
    return found + attention_trials() + counted_trials()


_IN_BF16 = 4
"""One trial of so many is tried in bf16 too."""


def trials() -> list[Trial]:
    """Everything, in the order in which it runs."""
    found = _of_small_layers()
    for batch in (1, 32):
        for layer in resnet50(batch):
            reference = len(found)
            found.append(trials_of(layer, "portable", large=True)[-1])
            found += [
                replace(trial, timed=True, reference=reference) for trial in trials_of(layer, "cutlass", 2, large=True)
            ]
    for layer in BANDWIDTH:
        found += [
            replace(trial, timed=True)
            for trial in plain(trials_of(replace(layer, precision=DType.F16), "portable", large=True))
        ]
    return found


def _of_small_layers() -> list[Trial]:
    found = []
    for layer in asked((*LAYERS, *SINGLE)):
        found += of_rows(layer) if isinstance(layer.op, Recurrent) else trials_of(layer, "portable")
    wide = [replace(layer, inputs=tuple(replace(given, shape=_wide(given.shape)) for given in layer.inputs),
                    precision=DType.F16, tolerance=TOLERANCE, label=f"wide-{layer.label}")
            for layer in BANDWIDTH]  # fmt: skip
    found = plain(found + [trial for layer in asked(wide) for trial in trials_of(layer, "portable")] + move_trials())
    for layer in asked((*SHAPES, *EPILOGUES, *MATMULS)):
        found += trials_of(layer, "cutlass") + trials_of(layer, "portable")
    for layer in asked((*SHAPES, *EPILOGUES[:4], *MATMULS)):
        found += trials_of(layer, "cutlass", kind="warpgroups")
    found += band_trials() + grouped_band_trials() + group_trials() + mean_trials() + channel_trials() + volume_trials()
    found += moment_trials()
    found += forms() + sliced_trials() + rolling_trials() + stem_trials() + copies() + row_trials()
    found += thin_trials()
    found += squeezes() + pair_trials() + shuffle_trials() + kept_trials()
    found += (
        region_trials()
        + scan_trials()
        + formulas()
        + pair_sums()
        + pair_products()
        + channel_attention()
        + head_pairs()
        + permuted_trials()
    )
    found += flat_trials() + tiled_trials() + flat_row_trials() + scatter_trials()
    found += (
        grouped_trials() + attention_trials() + counted_trials() + prologues() + averages() + row_sums() + norm_trials()
    )
    found += sliced_norm_trials() + prenorm_trials() + gated_trials() + slabs() + half_products() + chosen_products()
    found += sliding_pools() + staged_pools() + fold_trials()
    found += staged_trials() + image_trials() + image_number_trials()
    found += [in_bf16(trial) for trial in found[::_IN_BF16] if in_bf16(trial) != trial]
    found += chain_trials() + inverted_trials() + strips_trials() + inverted_strips_trials() + quads_trials()
    found += turned_trials() + averaged_trials() + normed_trials() + line_trials()
    found += resample_trials() + quantised_trials() + atomic_trials() + plane_norm_trials() + short_scan_trials()
    found += far_trials() + shared_line_trials() + crossed_trials()
    found += folded_formulas() + placed_rows() + separated_pools() + patch_sums()
    return found + apart(found)


@functools.cache
def small_trials(labels: tuple[str, ...]) -> dict[str, Trial]:
    """Those that are not large, by label, of layers with labels that begin so: found once for all workers of a run of
    tests, which takes seconds."""
    with entered(f"small-trials-{digest(list(labels))[:16]}") as folder:
        kept = folder / "trials.pkl"
        if not kept.exists():
            with asked_for(labels):
                kept.write_bytes(pickle.dumps([trial for trial in _of_small_layers() if not trial.large]))
        return {trial.label: trial for trial in pickle.loads(kept.read_bytes())}


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A small shape of the same kind: channels that are a multiple of 8, extents that are not."""
    return (2, *((shape[1] // 4,) if shape[1] > 64 else (shape[1],)), *(11 for _ in shape[2:]))
