"""Normalisations of planes that have one statistic and lie apart, such as those of a channel in a batch."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_bf16 import COARSER
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.norms.norm_planes import PlanesTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm

_CLUSTERS = TARGET.gpu is not None and TARGET.gpu.warpgroup_mma
"""Whether blocks of the target form clusters."""
_BATCH, _ADD = (0, 2, 3), (stage("add", 3), RELU)


def _layer(
    label: str, shape: tuple[int, ...], axes: tuple[int, ...], *, scaled: bool = False, added: bool = False,
    statistic: str = "variance", precision: DType = DType.F16,
) -> Layer:  # fmt: skip
    of_channels = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    inputs = [Input(shape, low=1.0, high=5.0), *(Input(of_channels, True) for _ in range(2 if scaled else 0))]
    inputs += [Input(shape)] if added else []
    op = Norm(statistic, axes, 1e-5)
    tolerance = TOLERANCE * (COARSER if precision is DType.BF16 else 1)
    return Layer(f"planes-norm-{label}", op, tuple(inputs), _ADD if added else (), precision, tolerance)


_LAYERS = (
    (_layer("whole", (5, 6, 8, 9), _BATCH), ((64, 1, 1, 1), (64, 1, 2, 4))),
    (_layer("odd", (6, 5, 7, 11), _BATCH, scaled=True), ((64, 2, 1, 1), (64, 1, 2, 1), (64, 1, 4, 8))),
    (_layer("added", (9, 3, 5, 5), _BATCH, scaled=True, added=True), ((64, 1, 1, 2), (128, 1, 1, 1))),
    (_layer("added-whole", (4, 7, 40), (0, 2), scaled=True, added=True), ((64, 1, 1, 2),)),
    (_layer("lengths", (7, 4, 33), (0, 2), statistic="l2"), ((64, 1, 1, 2), (64, 1, 4, 1))),
    (_layer("inside", (2, 3, 5, 13), (1, 3), precision=DType.BF16), ((64, 1, 1, 2),)),
    (_layer("again", (5, 2, 83, 89), _BATCH, scaled=True), ((64, 16, 1, 2), (64, 16, 2, 2))),
    (_layer("wide", (3, 4, 29, 29), _BATCH, precision=DType.F32), ((64, 3, 2, 1),)),
)
"""Planes of whole loads and such that begin inside of one, in blocks and in clusters; threads, loads, blocks of a
cluster, and of a multiprocessor."""


def plane_norm_trials() -> list[Trial]:
    found = []
    for layer, stated in (each for each in _LAYERS if asked((each[0],))):
        cuts = [PlanesTile(*sizes) for sizes in stated]
        tiles = [candidate_of("portable", "planes", cut) for cut in cuts if cut.cluster == 1 or _CLUSTERS]
        for trial in trials_of(layer, "portable"):
            given = trial.step.problem.inputs[0].format
            if given.layout is not Layout.ROW or given.dtype is not layer.precision:
                continue
            for tile in tiles:
                if (reason := PORTABLE.refuse(trial.step.problem, tile, TARGET)) is not None:
                    raise ValueError(f"{layer.label}: {tile}: {reason}")
                found.append(replace(trial, candidate=tile))
    return found
