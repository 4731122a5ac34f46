"""Gated products, as layers that are tried on a GPU: two products or one with the columns of both, as halves or as
neighbours, with biases of either side, functions on either, a residual behind, ragged rows and columns."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_harness import TARGET, Trial
from gpu_products import GELU, SILU, TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.gated import GATED_WARP_TILES, GATED_WGMMA_TILES
from bolt_build.families.cutlass.registry import kinds_for
from bolt_build.graph.ir import EpilogueOp, Layout, Op, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.graph.ops.products.matmul import MatMul

FAMILY = Cutlass()
SIGMOID, TANH = (EpilogueOp(Activation("sigmoid")),), (EpilogueOp(Activation("tanh")),)
GELU_TANH = (EpilogueOp(Activation("gelu_tanh")),)
Stages = tuple[EpilogueOp, ...]


def gated(
    label: str,
    product: Op,
    x: tuple[int, ...],
    columns: int,
    first: Stages = SILU,
    second: Stages = (),
    *,
    biases: tuple[bool, bool] = (False, False),
    joint: bool = False,
    neighbours: bool = False,
    kernel: tuple[int, ...] = (),
    add: bool = False,
) -> Layer:
    """A gated product of so many columns. `joint`: one product has both sides, with a bias where the first has one."""
    of_product = columns * 2 if joint else columns
    channels = x[1] if isinstance(product, Conv) else x[-1]
    if isinstance(product, Conv):
        shape: tuple[int, ...] = (of_product, channels, *kernel)
    else:
        assert isinstance(product, MatMul)
        shape = (of_product, channels) if product.transpose_b else (channels, of_product)
    bound = (3.0 / (channels * _taps(kernel))) ** 0.5
    weights, bias = Input(shape, True, -bound, bound), Input((of_product,), True)
    ones = (Input(x), weights, *([bias] if biases[0] else []))
    others = () if joint else (weights, *([bias] if biases[1] else []))
    op = Gated(product, len(ones), first, second, neighbours)
    inputs = (*ones, *others)
    (output,) = op.infer([TensorType(DType.F16, each.shape) for each in inputs])
    behind = (stage("add", len(inputs)),) if add else ()
    inputs = (*inputs, Input(output.shape)) if add else inputs
    return Layer(label, op, inputs, behind, DType.F16, TOLERANCE)


def _taps(kernel: tuple[int, ...]) -> int:
    taps = 1
    for extent in kernel:
        taps *= extent
    return taps


def conv(stride: int = 1, pad: int = 0, dilation: int = 1, spatial: int = 2) -> Conv:
    """A convolution with the same along each axis."""
    return Conv((stride,) * spatial, (pad,) * spatial, (pad,) * spatial, (dilation,) * spatial, 1)


def step_of(layer: Layer) -> ProposedStep:
    """The gated product of a layer as one step."""
    op = layer.op
    assert isinstance(op, Gated)
    last = Layout.CHANNELS_LAST if isinstance(op.product, Conv) else Layout.ROW
    operands = []
    for given in layer.inputs:
        weights = given.constant and len(given.shape) > 1
        dtype = DType.F32 if given.constant and not weights else layer.precision
        layout = Layout.ROW if given.constant else last
        operands.append(Operand(given.shape, TensorFormat(dtype, layout), given.constant))
    own = len(layer.inputs) - len(layer.epilogue)
    (output,) = op.infer([operand.type for operand in operands[:own]])
    outputs = (Operand(output.shape, TensorFormat(layer.precision, last)),)
    problem = KernelProblem(op, tuple(operands), outputs, layer.epilogue, DType.F32, TARGET.name)
    names = tuple(f"x{index}" for index in range(len(operands)))
    read = kinds_for(problem)[0].reads_apart(problem)
    return ProposedStep(problem, names, ("y",), pitched=(0,), reads_apart=read)


ROWS = MatMul(transpose_b=True)
FACTOR = MatMul()
LAYERS = (
    gated("swiglu", ROWS, (2, 67, 136), 104),
    gated("swiglu-biases", ROWS, (2, 67, 136), 104, biases=(True, True), add=True),
    gated("geglu-halves", FACTOR, (130, 96), 320, (), GELU, biases=(True, False), joint=True),
    gated("geglu-tanh", FACTOR, (333, 72), 72, GELU_TANH, (), biases=(False, True)),
    gated("glu-neighbours", ROWS, (3, 100, 64), 48, (), SIGMOID, biases=(True, False), joint=True, neighbours=True),
    gated("bilinear", ROWS, (200, 64), 256, (), ()),
    gated("many", ROWS, (4500, 64), 512, SILU),
    gated("clipped", ROWS, (150, 264), 136, (RELU, *TANH), SIGMOID, add=True),
    gated("odd-depth", FACTOR, (130, 45), 72, GELU, biases=(True, True)),
    gated("few-channels", conv(1, 1), (2, 6, 20, 22), 32, SILU, kernel=(3, 3)),
    gated("odd-channels", conv(), (2, 20, 9, 10), 40, (), SIGMOID, joint=True, kernel=(1, 1)),
    gated("glu-1d", conv(spatial=1), (2, 64, 77), 64, (), SIGMOID, biases=(True, False), joint=True, kernel=(1,)),
    gated("star", conv(), (2, 32, 9, 11), 96, (RELU,), (), biases=(True, True), kernel=(1, 1)),
    gated("wavenet", conv(1, 2, 2, 1), (2, 64, 90), 64, TANH, SIGMOID, biases=(True, True), kernel=(3,)),
    gated("window", conv(2, 1), (2, 40, 13, 15), 56, SILU, joint=True, kernel=(3, 3), add=True),
)
DEEP = (
    gated("deep", ROWS, (70, 2048), 136, SILU, biases=(True, True), add=True),
    gated("deep-conv", conv(1, 1), (1, 256, 7, 7), 64, GELU, biases=(True, False), joint=True, kernel=(3, 3)),
)
"""Of few tiles, and a depth that slices pay for."""


FORMS = (
    {"m": 128, "n": 256, "k": 64, "warpgroups": "cooperative"},
    {"m": 256, "n": 128, "k": 32, "warpgroups": "cooperative", "cluster": "2x1"},
    {"m": 192, "n": 160, "k": 64, "warpgroups": "cooperative"},
    {"m": 128, "n": 128, "k": 64, "warpgroups": "pairs"},
    {"m": 64, "n": 32, "k": 128, "warpgroups": "pingpong", "cluster": "1x2"},
    {"m": 128, "n": 192, "k": 64, "warpgroups": "cooperative"},
    {"m": 64, "n": 96, "k": 64, "warpgroups": "single"},
    {"m": 128, "n": 128, "k": 32, "warp_m": 64, "warp_n": 64},
    {"m": 64, "n": 256, "k": 64, "warp_m": 64, "warp_n": 64},
    {"m": 256, "n": 64, "k": 32, "warp_m": 64, "warp_n": 64},
    {"m": 128, "n": 64, "k": 64, "warp_m": 32, "warp_n": 32},
)
"""Tiles of every form, for a product with all that there may be: ragged rows and columns, biases, a residual."""
FORMED = gated("form", ROWS, (3, 333, 200), 328, SILU, SIGMOID, biases=(True, True), add=True)


def formed(wanted: dict[str, int | str]) -> Trial:
    """A kernel with a tile of a form."""
    step = step_of(FORMED)
    tiles = (*GATED_WGMMA_TILES, *GATED_WARP_TILES)
    tile = next(each for each in tiles if wanted.items() <= dict(each.parameters).items())
    return Trial(FORMED, step, Candidate("cutlass", tile.parameters))


def first_of(layer: Layer, name: str) -> list[Trial]:
    """The first kernel of each value of a parameter or setting, where there is one."""
    found: dict[int | str, Trial] = {}
    step = step_of(layer)
    for candidate in FAMILY.candidates(step.problem, TARGET)[0]:
        stated = dict((*candidate.parameters, *candidate.settings))
        if name in stated:
            found.setdefault(stated[name], Trial(layer, step, candidate))
    return list(found.values())


def gated_trials() -> list[Trial]:
    """Each layer in every schedule and by warps, each form of tile, slices, and rows that lie apart."""
    found: list[Trial] = []
    for layer in LAYERS:
        found += first_of(layer, "warpgroups") + first_of(layer, "warp_m")
    for layer in DEEP:
        found += first_of(layer, "slices")[:3]
    found += [formed(wanted) for wanted in FORMS]
    apart = [trial for trial in found if trial.layer.label in ("swiglu-biases", "glu-1d")]
    return found + [replace(trial, pitch=trial.step.problem.outputs[0].row + 24, between=16) for trial in apart]
