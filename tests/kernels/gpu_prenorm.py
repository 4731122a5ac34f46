"""Matrix products of rows that are normalised as they are loaded: ragged rows and columns, residuals, rows far from
zero, by variance and by the mean of squares."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer, graph_with
from families_layers import stage
from gpu_harness import TARGET, Trial
from gpu_products import GELU, TOLERANCE, matmul

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.chains import chained
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.norms.wgmma_prenorm import PrenormTile, WgmmaPrenorm
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.norms.norm import Norm

FAMILY = Cutlass()


def step_of(
    label: str, x: Input, columns: int, *, statistic: str = "variance", vectors: int = 2, by: bool = False,
    epilogue: tuple[EpilogueOp, ...] = (),
) -> tuple[Layer, ProposedStep]:  # fmt: skip
    """A normalisation of rows with so many constants, and the product that reads it, as one step and as one layer."""
    product = matmul(label, x.shape, columns, by, epilogue)
    added = tuple(Input((*x.shape[:-1], columns)) for each in epilogue if each.operand is not None)
    graph, node = graph_with(replace(product, inputs=(*product.inputs, *added)))
    behind = FAMILY.propose(graph, node, TARGET, DType.F16)[0][0].steps[0].problem
    given = behind.inputs[0]
    vector = Operand((x.shape[-1],), TensorFormat(DType.F32, Layout.ROW), constant=True)
    op = Norm(statistic, (len(x.shape) - 1,), 1e-5)
    norm = KernelProblem(op, (given, *[vector] * vectors), (given,), (), DType.F32, TARGET.name)
    both = chained(norm, behind)
    constants = (Input(vector.shape, True, 0.5, 1.5), Input(vector.shape, True))[:vectors]
    layer = Layer(label, both.op, (x, *constants, *product.inputs[1:], *added), both.epilogue, DType.F16, TOLERANCE)
    names = tuple(f"x{index}" for index in range(len(both.inputs)))
    return layer, ProposedStep(both, names, ("y",), reads_apart=WgmmaPrenorm().reads_apart(both))


def turns(m: int, n: int, k: int) -> PrenormTile:
    return PrenormTile(WgmmaTile(m, n, k, cooperative=False))


def together(m: int, n: int, k: int) -> PrenormTile:
    return PrenormTile(WgmmaTile(m, n, k, cooperative=True))


ADD = (stage("add", 3),)
FAR = 60.0
"""Where rows lie whose standard deviation is 0.6: a sum of squares would keep six of its 24 bits."""


def with_tiles(of: tuple[Layer, ProposedStep], *tiles: PrenormTile, pitch: int = 0, between: int = 0) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not."""
    layer, step = of
    return [Trial(layer, step, Candidate("cutlass", tile.parameters), pitch=pitch, between=between) for tile in tiles]


def prenorm_trials() -> list[Trial]:
    """Every schedule and depth of a step, more tiles than multiprocessors of a test, rows that lie apart."""
    far = step_of("prenorm-far", Input((2, 67, 192), low=FAR - 1, high=FAR + 1), 200)
    plain = step_of("prenorm-rms", Input((200, 96), low=-1.0, high=3.0), 72, statistic="rms", vectors=1, by=True)
    residual = step_of("prenorm-residual", Input((3, 50, 256)), 200, epilogue=ADD)
    bare = step_of("prenorm-bare", Input((1, 130, 128), low=-1.0, high=3.0), 264, vectors=0, epilogue=GELU)
    scaled = step_of("prenorm-rms-far", Input((300, 64), low=1e-3, high=3e-3), 200, statistic="rms", vectors=0)
    found = with_tiles(far, turns(64, 96, 64), together(128, 192, 64), together(256, 128, 64), together(192, 192, 64))
    found += with_tiles(plain, turns(64, 64, 32), turns(128, 64, 32), together(256, 64, 32))
    found += with_tiles(residual, turns(128, 128, 64), together(128, 256, 64), together(128, 64, 128))
    found += with_tiles(bare, turns(128, 128, 32), together(192, 128, 64), turns(64, 128, 128))
    found += with_tiles(scaled, together(128, 96, 64))
    return found + with_tiles(residual, turns(64, 128, 64), together(192, 64, 64), pitch=208, between=24)
