"""Layers that the portable kernels are tried with: each operator's attributes, odd sizes, epilogues, element types."""

from __future__ import annotations

from families_harness import Input, Layer
from function_layers import functions
from head_layers import ATTENTION, HEADS
from quantised_layers import QUANTISED
from recurrent_kernels import NARROW_RECURRENT, RECURRENT
from region_layers import REGIONS, TREES, WEIGHED
from scan_layers import SCANS

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp, Op
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaTerm
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.elementwise.pair_sum import PairSum
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.patch_sum import PatchSum
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.line import FUNCTIONS as LINES
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.graph.ops.lines.reduce import MODES, Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack, UnfoldDepth
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import BatchNorm, Lrn
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.pair_product import PairProduct
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul

RELU = EpilogueOp(Activation("relu"))
CLIP = EpilogueOp(Activation("clip", -1.0, 1.5))
IMAGE = (2, 5, 6, 7)
WIDE = (1, 40, 33, 32)


def stage(function: str, operand: int, swapped: bool = False) -> EpilogueOp:
    return EpilogueOp(Binary(function), operand, swapped)


def one(label: str, op: Op, shape: tuple[int, ...], epilogue: tuple[EpilogueOp, ...] = (), *operands: Input) -> Layer:
    return Layer(label, op, (Input(shape), *operands), epilogue)


ACTIVATIONS = [
    *functions(IMAGE),
    one("clip-open", Activation("clip", 0.0, float("inf")), IMAGE),
    one("relu-scalar", Activation("relu"), ()),
    one("relu-wide", Activation("relu"), WIDE),
    one("relu-vector", Activation("relu"), (20000,)),
    one("relu-chain", Activation("relu"), IMAGE, (stage("add", 1), CLIP, stage("mul", 2), stage("sub", 3)),
        Input(IMAGE), Input((5, 1, 1), True), Input((), True)),
    one("swapped-stages", Activation("abs"), IMAGE, (stage("sub", 1, True), stage("div", 2, True)),
        Input(IMAGE, low=5.0, high=6.0), Input((1,), True)),
    one("gate-of-rows", Activation("silu"), (3, 10, 16), (stage("mul", 1), stage("add", 2), RELU), Input((3, 10, 16)),
        Input((16,), True)),
    one("gate-first", Activation("gelu"), IMAGE, (stage("sub", 1, True),), Input(IMAGE)),
    one("stage-of-width", Activation("relu"), IMAGE, (stage("add", 1),), Input((7,), True)),
    one("pow-max-min", Activation("abs"), IMAGE, (stage("pow", 1), stage("max", 2), stage("min", 3)),
        Input((1, 5, 1, 1), True, 1.0, 2.0), Input((), True, 0.1, 0.2), Input(IMAGE)),
]  # fmt: skip


def two(label: str, function: str, a: tuple[int, ...], b: tuple[int, ...], **options: bool) -> Layer:
    low = 0.5 if function in ("div", "pow") else -2.0
    return Layer(label, Binary(function), (Input(a, low=low), Input(b, options.get("constant", False), low=low)))


BINARIES = [
    *(two(name, name, IMAGE, IMAGE) for name in ("add", "sub", "mul", "div", "pow", "max", "min", "prelu")),
    two("channel", "mul", IMAGE, (5, 1, 1), constant=True),
    two("channel-left", "sub", (1, 5, 1, 1), IMAGE),
    two("squeeze-excite", "mul", IMAGE, (2, 5, 1, 1)),
    two("scalar", "div", IMAGE, ()),
    two("scalar-left", "sub", (1,), IMAGE),
    two("width", "add", IMAGE, (7,)),
    two("outer", "add", (5, 1, 7), (2, 1, 6, 1)),
    two("full-constant", "add", IMAGE, IMAGE, constant=True),
    two("image-without-batch", "add", IMAGE, (5, 6, 7)),
    two("both-scalar", "add", (), ()),
    two("wide", "add", WIDE, WIDE),
    two("one-long-row", "add", (30000,), (30000,)),
    Layer("add-relu", Binary("add"), (Input(IMAGE), Input(IMAGE)), (RELU,)),
    *(
        Layer(f"stages-of-{channels}", Binary("mul"),
              (*[Input((2, channels, 3, 4))] * 2, Input((channels, 1, 1), True), Input((2, channels, 3, 4)),
               Input((), True)),
              (stage("sub", 2, True), stage("sub", 3, True), stage("add", 4)))
        for channels in (16, 12)
    ),
    *(
        one(f"lanes-of-{channels}", Activation("abs"), (2, channels, 3, 4),
            (stage("sub", 1, True), stage("sub", 2, True)), Input((channels, 1, 1), True), Input((2, channels, 3, 4)))
        for channels in (16, 12)
    ),
    Layer("add-mul-channel", Binary("add"), (Input(IMAGE), Input(IMAGE), Input((5, 1, 1), True)),
          (stage("mul", 2), CLIP)),
    Layer("broadcast-then-channel", Binary("mul"), (Input(IMAGE), Input((2, 1, 6, 7)), Input((1, 5, 1, 1), True)),
          (stage("add", 2), RELU)),
]  # fmt: skip


def pool(label: str, mode: str, kernel: int, stride: int, pads: int, **options: bool) -> Layer:
    op = Pool(mode, (kernel,) * 2, (stride,) * 2, (pads,) * 2, (pads,) * 2, (1, 1), **options)
    return one(label, op, (2, 13, 9, 8))


POOLS = [
    pool("max-3", "max", 3, 2, 1),
    pool("max-ceil", "max", 3, 2, 0, ceil_mode=True),
    pool("average", "average", 3, 2, 1),
    pool("average-padded", "average", 3, 2, 1, count_include_pad=True),
    pool("average-ceil", "average", 3, 2, 1, ceil_mode=True),
    pool("average-ceil-padded", "average", 3, 2, 1, ceil_mode=True, count_include_pad=True),
    one("lp-2", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), (2, 13, 9, 8)),
    one("lp-1-ceil", LpPool(1, (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), True), (2, 32, 8, 8)),
    one("lp-3-chain", LpPool(3, (2,), (1,), (0,), (0,), (1,)), (2, 5, 11), (RELU,)),
    one("places", PoolPlaces((3, 2), (2, 1), (1, 0), (1, 1), (1, 2), True), (2, 5, 9, 8)),
    one("places-column", PoolPlaces((2, 3), (1, 1), (0, 1), (1, 0), (1, 1), column_major=True), (2, 5, 6, 7)),
    one("places-3d", PoolPlaces((2,) * 3, (2,) * 3, (0,) * 3, (0,) * 3, (1,) * 3), (1, 2, 4, 5, 4)),
    one("max-wide", Pool("max", (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), WIDE),
    one("max-dilated", Pool("max", (2, 3), (1, 2), (1, 0), (0, 2), (3, 2)), (1, 9, 11, 12)),
    one("average-dilated", Pool("average", (2, 2), (1, 1), (1, 1), (1, 1), (2, 2)), (1, 9, 7, 7)),
    one("pool-1d", Pool("max", (3,), (2,), (1,), (1,), (1,)), (2, 5, 11)),
    one("pool-3d", Pool("average", (2, 2, 3), (1, 2, 2), (0, 1, 1), (1, 0, 1), (1, 1, 1)), (1, 3, 4, 5, 6)),
    one("pool-chain", Pool("max", (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), IMAGE, (stage("add", 1), RELU),
        Input((5, 1, 1), True)),
]  # fmt: skip


def norm(
    label: str, op: Norm, shape: tuple[int, ...], scale: tuple[int, ...] | None = None, data: bool = False
) -> Layer:
    """With scale and bias of the shape `scale` where there is one; `data`: they are no constants."""
    operands = () if scale is None else (Input(scale, not data), Input(scale, not data))
    return Layer(label, op, (Input(shape), *operands))


NORMS = [
    norm("layer-norm", Norm("variance", (2,), 1e-5), (2, 5, 72), (72,)),
    norm("layer-norm-odd", Norm("variance", (2,), 1e-5), (2, 5, 37), (37,), data=True),
    norm("layer-norm-long", Norm("variance", (1,), 1e-5), (3, 3000), (3000,)),
    norm("layer-norm-many", Norm("variance", (1,), 1e-5), (2051, 392), (392,)),
    norm("layer-norm-warps", Norm("variance", (1,), 1e-5), (19, 1152), (1152,)),
    norm("layer-norm-longest", Norm("variance", (1,), 1e-5), (2, 9000), (1,)),
    norm("layer-norm-of-planes", Norm("variance", (2, 3), 1e-3), IMAGE, (6, 7)),
    norm("rms-norm", Norm("rms", (2,), 1e-6), (2, 5, 264)),
    norm("deviation", Norm("deviation", (2,), 1e-5), (2, 5, 72), (72,)),
    norm("deviation-of-channels", Norm("deviation", (1,), 1e-5), IMAGE),
    norm("deviation-long", Norm("deviation", (1,), 1e-5), (2, 9000), (1,)),
    norm("l1-of-channels", Norm("l1", (1,)), IMAGE),
    norm("l2-of-channels", Norm("l2", (1,)), WIDE),
    Layer("l2-of-zeros", Norm("l2", (1,)), (Input((3, 16), low=0.0, high=0.0),)),
    Layer("l2-of-little", Norm("l2", (1,), 3.0), (Input((3, 16), low=-1.0, high=1.0),)),
    norm("group-norm", Norm("variance", (1, 2, 3), 1e-5, 2), (2, 6, 5, 7), (6, 1, 1)),
    norm("instance-norm", Norm("variance", (2, 3), 1e-5), (2, 40, 5, 7), (40, 1, 1)),
    norm("mean-variance", Norm("variance", (0, 2, 3), 1e-18), IMAGE),
    Layer("norm-chain", Norm("variance", (1, 2, 3), 1e-5, 2), (Input((2, 6, 5, 4)), Input((6, 1, 1), True),
          Input((6, 1, 1), True), Input((2, 6, 5, 4)), Input((6, 1, 1), True)),
          (stage("add", 3), RELU, stage("mul", 4))),
    Layer("scaled-norm-chain", Norm("rms", (2,), 1e-5), (Input((2, 5, 72)), Input((72,), True), Input((2, 5, 72))),
          (stage("add", 2), EpilogueOp(Activation("gelu")))),
]  # fmt: skip

REDUCED_COLUMNS = ("min", "prod", "l1", "l2", "sum_square", "log_sum_exp")
REDUCTIONS = [
    *(one(f"global-{mode}", Reduce(mode, (2, 3)), (2, 40, 5, 7)) for mode in ("mean", "sum", "max")),
    *(one(f"rows-{mode}", Reduce(mode, (1, 2)), (3, 5, 7)) for mode in MODES if mode not in ("mean", "sum", "log_sum")),
    *(one(f"columns-{mode}", Reduce(mode, (1,)), (2, 7, 40)) for mode in REDUCED_COLUMNS),
    Layer("rows-log_sum", Reduce("log_sum", (1,)), (Input((3, 37), low=0.1),)),
    *(one(f"{name}-last", Line(name, 2), (2, 3, 37)) for name in LINES),
    *(one(f"{name}-channels", Line(name, 1), IMAGE) for name in LINES),
    one("global-flat", Reduce("mean", (2, 3), keepdims=False), (2, 19, 5, 7)),
    one("over-channels", Reduce("max", (1,)), IMAGE),
    one("over-channels-flat", Reduce("sum", (1,), keepdims=False), IMAGE),
    one("over-height-flat", Reduce("mean", (2,), keepdims=False), IMAGE),
    one("over-batch-and-width", Reduce("sum", (0, 3)), IMAGE),
    one("over-everything", Reduce("mean", (0, 1, 2, 3), keepdims=False), IMAGE),
    one("few-of-many", Reduce("sum", (2,), keepdims=False), (40, 53, 6)),
    one("over-last-of-two", Reduce("mean", (1,)), (3, 70)),
    one("over-first-of-two", Reduce("mean", (0,)), (30, 70)),
    one("over-nothing", Reduce("sum", ()), IMAGE),
    one("reduce-chain", Reduce("mean", (2, 3)), IMAGE, (stage("mul", 1), RELU), Input((5, 1, 1), True)),
    one("long-sum", Reduce("mean", (2, 3)), (1, 3, 200, 200)),
    one("long-sum-of-many", Reduce("mean", (2, 3)), (2, 24, 31, 30)),
    one("middling-sum", Reduce("mean", (2, 3)), (2, 40, 20, 20)),
    one("shorter-sum", Reduce("mean", (2, 3)), (3, 36, 10, 10)),
    one("over-many-rows", Reduce("mean", (1,)), (2051, 40)),
    one("over-many-odd-rows", Reduce("max", (1,)), (2049, 35)),
]

NORMALIZATIONS = [
    Layer("batch-norm", BatchNorm(1e-5), (
        Input(IMAGE), *(Input((5,), True) for _ in range(3)), Input((5,), True, 0.5, 2.0)), (RELU,)),
    Layer("batch-norm-given", BatchNorm(1e-3), (Input((4, 6)), *(Input((6,), low=0.5) for _ in range(4)))),
    one("lrn", Lrn(5, 1e-1, 0.75, 2.0), (2, 9, 4, 3)),
    one("lrn-even", Lrn(4, 2e-1, 0.6, 1.0), (1, 7, 3, 3)),
    one("lrn-wider-than-channels", Lrn(9, 1e-1, 0.75, 1.0), (1, 3, 2, 2)),
    one("softmax-row", Softmax(1), (3, 1000)),
    *(one(f"softmax-{axis}", Softmax(axis), IMAGE) for axis in range(4)),
    one("softmax-keys", Softmax(2), (3, 7, 72)),
    one("softmax-odd-keys", Softmax(2), (3, 7, 197)),
    one("softmax-warps", Softmax(1), (9, 1536)),
    one("softmax-long", Softmax(1), (3, 4096)),
    one("softmax-longest", Softmax(1), (2, 9001)),
]  # fmt: skip

MOVES = [
    one("identity", Identity(), IMAGE),
    Layer("cast-f16", Cast(DType.F16), (Input(IMAGE),), tolerance=1e-3),
    Layer("cast-bf16", Cast(DType.BF16), (Input(IMAGE),), tolerance=1e-2),
    Layer("cast-from-f16", Cast(DType.F32), (Input(IMAGE, dtype=DType.F16),)),
    Layer("cast-from-f64", Cast(DType.F32), (Input(IMAGE, dtype=DType.F64),)),
    one("reshape", Reshape((5, 12, 7)), IMAGE),
    Layer("gather", Gather(1), (Input(IMAGE), Input((3, 2), low=-5.4, high=4.9, dtype=DType.I64))),
    Layer("gather-lists", Gather(2), (Input((2, 16, 5, 3)), Input((10,), low=-5.4, high=4.9, dtype=DType.I64))),
    Layer("gather-one-by-one", Gather(1), (Input((9, 6)), Input((16,), low=-6.4, high=5.9, dtype=DType.I32))),
    Layer("pair-sum", PairSum((2, 3, 4, 6), (True, True, False), (False, True, False), (0.5, 2.0, 1.0)),
          (Input((2, 3, 4, 9)), Input((4, 6), low=-9.4, high=8.9, dtype=DType.I32), Input((3, 6, 5)),
           Input((6, 4), low=-5.4, high=4.9, dtype=DType.I32), Input((2, 1, 1, 6)))),
    Layer("pair-product", PairProduct(
              (2, 3, 4, 6), (((2, 4, 3, 5), (0, 2, 1, 3), (2, 3, 4, 5)), ((2, 6, 3, 5), (0, 2, 1, 3), (2, 3, 6, 5))),
              (False, True), (0.5, 2.0)),
          (Input((2, 4, 15)), Input((3, 9, 5), True), Input((2, 6, 15)), Input((9, 5), True),
           Input((1, 1), True, 0.5, 2.4, DType.I32), Input((4, 6), True, 0.1, 6.9, DType.U8),
           Input((1, 1), True, 0.5, 2.4, DType.I32), Input((4, 6), True, 0.1, 6.9, DType.U8))),
    Layer("channel-attention", ChannelAttention(3, 0.5, "l2", 1e-6, True),
          (Input((2, 9, 45)), Input((6, 9), True, 0.5, 2.0))),
    Layer("gather-elements", GatherElements(0), (Input((9, 6)), Input((4, 6), low=-9.4, high=8.9, dtype=DType.I32))),
    Layer("scatter-rows", ScatterND("add", 1),
          (Input((2, 7, 5)), Input((2, 9, 1), low=-6.4, high=6.4, dtype=DType.I64), Input((2, 9, 5)))),
    Layer("scatter-add", ScatterElements(0, "add"),
          (Input((9, 6)), Input((4, 6), low=-9.4, high=8.9, dtype=DType.I64), Input((4, 6)))),
    Layer("formula", Formula(3, (FormulaTerm(Binary("mul"), (0, 1)), FormulaTerm(Activation("tanh"), (3,)),
                                 FormulaTerm(Binary("sub"), (2, 4)), FormulaTerm(Binary("max"), (5, 3)))),
          (Input(IMAGE), Input((2, 5, 1, 1)), Input((6, 1), True))),
    Layer("folded-formula",
          FoldedFormula(Formula(2, (FormulaTerm(Binary("sub"), (0, 1)), FormulaTerm(Activation("square"), (2,)))),
                        Reduce("mean", (1, 3))), (Input(IMAGE), Input((2, 1, 6, 1)))),
    Layer("patch-sum", PatchSum((6, 7), (3, 2), (2, 1), (1, 2), (1, 1), (3, 7)), (Input((2, 18, 21)),)),
    Layer("where", Where(), (Input((5, 1, 7), low=0, high=1, dtype=DType.BOOL), Input(IMAGE), Input((), True))),
    Layer("integers-mod", Binary("mod"),
          (Input((40, 7), low=-99, high=99, dtype=DType.I64), Input((7,), low=-9, high=9, dtype=DType.I64))),
    *(
        Layer(f"interpolate-{axis}", Interpolate(axis),
              (Input(IMAGE), Input((9, 3), True, low=-0.4, high=3.4, dtype=DType.I64), Input((9, 3), True)))
        for axis in (2, 3)
    ),
    *(
        Layer("resample-" + "-".join(map(str, axes)), Resample(axes),
              (Input(IMAGE), *[Input((9,), True, -3.4, 8.4, DType.I64), Input((9, 3), True)] * len(axes)))
        for axes in ((2, 3), (2,), (3,), (1, 2))
    ),
    *(one(op.kind, op, IMAGE) for op in (CumSum(1, reverse=True), CumProd(1, True, True))),
    *(
        one(f"{op.kind}-{length}", op, (3, length))
        for op, length in (
            (CumSum(1), 40), (CumSum(1, True, True), 300), (CumProd(1, exclusive=True), 17),
        )
    ),
    *(
        Layer(f"{op.kind}-{length}", op, (Input((3, length), low=-9, high=9, dtype=dtype),))
        for op, dtype, length in (
            (CumSum(1), DType.I32, 128), (CumSum(1, exclusive=True), DType.I32, 1030),
            (CumSum(1, reverse=True), DType.I64, 3000), (CumSum(1, True, True), DType.I64, 2048),
        )
    ),
    one("expand", Expand((4, 5, 6)), (4, 1, 6)),
    one("flatten-pixel", Reshape((2, 9)), (2, 9, 1, 1)),
    *(one(f"transpose-{''.join(map(str, perm))}", Transpose(perm), IMAGE)
      for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 2, 3), (0, 1, 2, 3))),
    one("transpose-matrix", Transpose((1, 0)), (70, 45)),
    one("transpose-colours", Transpose((0, 2, 3, 1)), (2, 3, 40, 31)),
    *(one(f"transpose-{few}-colours", Transpose((0, 2, 3, 1)), (2, few, 40, 31)) for few in (2, 3, 4)),
    *(one(f"transpose-to-{few}-colours", Transpose((0, 3, 1, 2)), (2, 6, 8, few)) for few in (2, 3, 4)),
    one("transpose-tiles", Transpose((0, 2, 1)), (2, 72, 132)),
    one("transpose-blocks", Transpose((0, 2, 1)), (2, 72, 136)),
    one("transpose-fours", Transpose((0, 2, 1)), (2, 76, 132)),
    one("transpose-odd", Transpose((0, 2, 1)), (2, 69, 133)),
    one("transpose-odd-rows", Transpose((0, 2, 1)), (2, 133, 72)),
    one("transpose-heads", Transpose((0, 2, 1, 3)), (2, 9, 4, 16)),
    one("transpose-many-channels", Transpose((0, 3, 1, 2)), (2, 9, 8, 37)),
    one("transpose-six", Transpose((0, 3, 1, 4, 2, 5)), (2, 3, 2, 3, 2, 4)),
    Layer("transpose-integers", Transpose((1, 0)), (Input((3, 4), dtype=DType.I64),)),
    *(Layer(f"concat-{axis}", Concat(axis), tuple(
        Input(tuple(extent if a == axis else size for a, size in enumerate(IMAGE))) for extent in (3, 1, 4)))
      for axis in range(4)),
    Layer("concat-with-constant", Concat(1), (Input((2, 3, 4)), Input((2, 2, 4), True))),
    Layer("concat-vectors", Concat(0), (Input((100000,)), Input((3,)))),
    Layer("concat-many", Concat(1), tuple(Input((2, (8, 3, 8, 1)[i % 4], 2, 3)) for i in range(72))),
    one("rearrange-shuffle", Rearrange((2, 2, 4, 3, 5), (0, 2, 1, 3, 4), (2, 8, 3, 5), 2, (2, 4, 3, 5)), (2, 8, 3, 5)),
    one("rearrange-pixels", Rearrange((2, 2, 3, 8, 2, 5), (0, 3, 4, 1, 5, 2), (2, 8, 4, 15), 0, (2, 8, 4, 15)),
        (2, 48, 2, 5)),
    one("rearrange-patches", Rearrange((2, 3, 2, 2, 3, 2), (0, 3, 5, 1, 2, 4), (2, 12, 2, 3), 0, (2, 12, 2, 3)),
        (2, 3, 4, 6)),
    one("rearrange-part", Rearrange((2, 8, 3, 5), (0, 1, 2, 3), (2, 8, 3, 5), 0, (2, 3, 3, 5)), (2, 8, 3, 5)),
    one("stack", Stack(2, 3, 2, 2, 1, 3, 15), (2, 5, 6, 3, 4)),
    one("stack-wide", Stack(2, 3, 1, 1, 1, 5, 48), (2, 16, 5, 3, 4)),
    one("stack-padded", Stack(3, 3, 1, 2, 2, 6, 16), (2, 5, 3, 6)),
    one("stack-steps", Stack(2, 1, 2, 1, 0, 3, 8), (1, 8, 5, 3, 2)),
    one("stack-line", Stack(2, 9, 1, 3, 12, 11, 72), (2, 8, 17)),
    one("fold-depth", FoldDepth(), (2, 5, 3, 2, 4)),
    one("unfold-depth", UnfoldDepth(3), (6, 5, 2, 4)),
    one("slice", Slice((0, 1, 2, 0), (2, 3, 2, 4), (1, 1, 2, 2)), IMAGE),
    one("slice-backwards", Slice((1, 4, 5, 6), (2, 3, 2, 7), (-1, -2, -3, -1)), IMAGE),
    one("slice-channels", Slice((0, 2, 0, 0), (2, 2, 6, 7), (1, 1, 1, 1)), IMAGE),
    one("pad", Pad((0, 0, 1, 2), (0, 0, 3, 0), value=1.5), IMAGE),
    one("pad-channels", Pad((0, 1, 0, 0), (1, 2, 0, 0)), IMAGE),
    one("pad-crops", Pad((0, -1, 2, -3), (0, 1, -4, 1)), IMAGE),
    one("pad-reflect", Pad((0, 0, 3, 2), (0, 0, 2, 6), mode="reflect"), IMAGE),
    one("pad-edge", Pad((1, 0, 3, 2), (0, 1, 2, 9), mode="edge"), IMAGE),
    one("pad-wrap-crops", Pad((0, -1, 2, -1), (0, 1, -4, 9), mode="wrap"), IMAGE),
    one("pad-lowest", Pad((2,), (1,), value=float("-inf")), (4,)),
]  # fmt: skip


def conv(label: str, x: tuple[int, ...], w: tuple[int, ...], op: Conv, *rest: Input, **options: bool) -> Layer:
    weights = Input(w, options.get("constant", True), -0.4, 0.4)
    return Layer(label, op, (Input(x), weights, *rest), (RELU,) if options.get("relu") else ())


PRODUCTS = [
    conv("conv", (2, 4, 9, 8), (6, 4, 3, 3), Conv((2, 1), (1, 0), (1, 2), (1, 1)), Input((6,), True), relu=True),
    conv("conv-grouped", (1, 6, 7, 7), (9, 2, 3, 3), Conv((1, 1), (2, 2), (2, 2), (2, 2), 3)),
    conv("conv-given-weights", (1, 4, 5, 5), (3, 4, 2, 2), Conv((1, 1), (0, 0), (0, 0), (1, 1)), Input((3,)),
         constant=False),
    conv("conv-1d", (2, 4, 9), (3, 4, 3), Conv((2,), (1,), (1,), (1,)), Input((3,), True)),
    conv("conv-3d", (1, 2, 4, 5, 6), (3, 2, 2, 3, 2), Conv((1, 2, 1), (1, 1, 0), (0, 1, 1), (1, 1, 1))),
    *(Layer(f"conv-{name}", Conv((1, 1), (1, 1), (1, 1), (1, 1)),
            (Input((1, 4, 5, 6)), Input((7, 4, 3, 3), True), Input((7,), True), Input((1, 7, 5, 6))), stages)
      for name, stages in (
          ("residual-relu", (stage("add", 3), RELU)),
          ("relu-residual", (RELU, stage("add", 3))),
          ("relu-residual-clip", (RELU, stage("add", 3), CLIP)),
          ("residual-relu-clip", (stage("add", 3), RELU, CLIP)),
          ("erf-from-residual", (EpilogueOp(Activation("erf")), stage("sub", 3, True))),
      )),
    *(Layer(f"matmul-{a}{b}", MatMul(a, b),
            (Input((30, 20) if a else (20, 30)), Input((70, 30) if b else (30, 70), True), Input((70,), True)), (RELU,))
      for a in (False, True) for b in (False, True)),
    Layer("matmul-batched", MatMul(), (Input((2, 1, 4, 5)), Input((3, 5, 6)))),
    Layer("placed-heads", PlacedMatMul(
        ((2, 7, 3, 4), (0, 2, 1, 3), (2, 3, 7, 4)), ((2, 5, 3, 4), (0, 2, 3, 1), (2, 3, 4, 5)),
        ((2, 3, 7, 5), (0, 2, 1, 3), (2, 7, 15))), (Input((2, 7, 12)), Input((2, 5, 12)), Input((2, 7, 15))),
        (stage("add", 2), RELU)),
    Layer("placed-image", PlacedMatMul(
        ((2, 2, 6, 3, 5), (0, 1, 2, 3, 4), (2, 2, 6, 15)), ((3, 5, 15), (2, 0, 1), (1, 15, 15)),
        ((2, 2, 6, 3, 5), (0, 1, 2, 3, 4), (2, 12, 3, 5))), (Input((2, 12, 3, 5)), Input((3, 5, 15)))),
    Layer("placed-shared", PlacedMatMul(
        ((2, 2, 3, 6), (0, 1, 2, 3), (2, 2, 3, 6)), ((2, 6, 5), (0, 1, 2), (2, 1, 6, 5)),
        ((2, 2, 3, 5), (1, 0, 3, 2), (4, 5, 3))), (Input((4, 3, 6)), Input((2, 6, 5)))),
    Layer("placed-tokens", PlacedMatMul(
        ((2, 7, 6), (0, 1, 2), (2, 7, 6)), ((6, 5), (0, 1), (6, 5)), ((2, 7, 5), (0, 1, 2), (2, 7, 5))),
        (Input((2, 7, 6)), Input((6, 5), True), Input((5,), True)), (RELU,)),
    Layer("matmul-batched-residual", MatMul(transpose_b=True), (Input((2, 4, 5)), Input((2, 6, 5)), Input((2, 4, 6))),
          (stage("add", 2), RELU)),
]  # fmt: skip


NARROW = [
    Layer(f"{dtype.value}-{layer.label}", layer.op, layer.inputs, layer.epilogue, dtype, tolerance)
    for dtype, tolerance in ((DType.BF16, 1e-2), (DType.F16, 2e-3))
    for layer in (*POOLS, *BINARIES, *REDUCTIONS, *NORMALIZATIONS, *MOVES, *PRODUCTS, *ACTIVATIONS, *ATTENTION, *HEADS)
    if layer.label in (
        "max-3", "average", "add-mul-channel", "outer", "global-mean", "over-channels", "batch-norm", "lrn",
        "softmax-1", "softmax-keys", "softmax-odd-keys", "transpose-0231", "transpose-tiles", "transpose-3-colours",
        "transpose-blocks", "rearrange-pixels", "rearrange-shuffle", "stack", "stack-wide", "stack-line",
        "over-many-rows", "gather-lists", "gather-one-by-one", "concat-1", "concat-with-constant", "slice", "pad",
        "conv-residual-relu", "matmul-FalseTrue", "gelu", "relu-chain", "gate-of-rows", "gate-first",
        "attention-packed", "attention-grouped", "rotary-halves", "rotary-neighbours", "rotary-part", "rotary-long",
        "heads-cosine", "heads-rms-turned", "heads-shifted-turned",
    )
]  # fmt: skip

LAYERS = [
    *ACTIVATIONS, *BINARIES, *POOLS, *NORMS, *REDUCTIONS, *NORMALIZATIONS, *MOVES, *PRODUCTS, *ATTENTION, *NARROW,
    *QUANTISED, *REGIONS, *TREES, *WEIGHED, *HEADS, *RECURRENT, *NARROW_RECURRENT, *SCANS,
]  # fmt: skip
