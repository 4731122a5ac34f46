"""Kernels that read rows which lie apart, and others than single products that store such: what dense blocks need."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU
from gpu_harness import Trial, trials_of
from gpu_pair_layers import behind
from gpu_pairs import pooling, registers, resident_pairs, warpgroups, with_pair_tiles, with_pooled_tiles
from gpu_products import RESIDUAL, TOLERANCE, conv

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.normalization import BatchNorm


def _read_apart(channels: int) -> list[Layer]:
    """What may stand behind a concatenation, of so many channels: in half precision where they are whole loads, else in
    fp32."""
    x, each = Input((3, channels, 5, 4)), Input((channels, 1, 1), True)
    statistics = (Input((channels,), True),) * 3 + (Input((channels,), True, 0.5),)
    layers = [
        Layer("rows-relu", Activation("relu"), (x,)),
        Layer("rows-affine", Binary("mul"), (x, each, each), (EpilogueOp(Binary("add"), 2), RELU)),
        Layer("rows-sum", Binary("add"), (x, x, x), (EpilogueOp(Binary("mul"), 2),)),
        Layer("rows-batch-norm", BatchNorm(1e-5), (x, *statistics), (RELU,)),
        Layer("rows-concat", Concat(1), (x, Input((3, 24, 5, 4)), Input((3, 7, 5, 4)))),
    ]
    layers = [replace(layer, label=f"{layer.label}-{channels}") for layer in layers]
    if channels % 8:
        return layers
    return [replace(layer, label=f"{layer.label}-f16", precision=DType.F16, tolerance=TOLERANCE) for layer in layers]


def row_trials() -> list[Trial]:
    """Whole loads and single elements, between rows of either, and results that are stored apart as well."""
    found = []
    for channels in (16, 7):
        for layer in _read_apart(channels):
            able = [t for t in trials_of(layer, "portable") if t.step.reads_apart and t.shared is None]
            found += [replace(trial, between=8 if channels % 8 == 0 else 3) for trial in able]
            stored = [trial for trial in able if trial.step.pitched]
            found += [replace(t, between=8, pitch=t.step.problem.outputs[0].row + 9) for t in stored]
            functions = [trial for trial in stored if isinstance(trial.layer.op, Activation | Binary)]
            found += [replace(t, between=8, pitch=t.step.problem.outputs[0].row + 8) for t in functions]
    apart = with_pooled_tiles(pooling(conv("rows-pool-stem", (2, 3, 33, 47), 64, (7, 7), 2), 3), ((16, 16),))
    found += [replace(trial, pitch=72) for trial in apart[:1]]
    layer = behind(conv("rows-pair", (3, 64, 27, 23), 64, (3, 3)), 56, epilogue=RESIDUAL)
    apart = with_pair_tiles(
        layer, (registers(128, 64, 64, 64, 32), warpgroups(128, 64, 96, 32, together=False), *resident_pairs(64, 4, 8))
    )
    return found + [replace(trial, pitch=64) for trial in apart if trial.shared is None]
