"""oneDNN kernels: everything that the family proposes agrees with NumPy, and the rest is refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from families_harness import Input, Kernel, Layer, Library, kernels_of, refusals_of
from head_layers import ATTENTION
from integer_layers import INTEGERS, few_are_a_step_off
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, StepExpressions
from bolt_build.families.onednn.family import OneDnn
from bolt_build.graph.ir import Constant, EpilogueOp, Node, TensorType, Value, graph_of
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import HOST

CPU_FLAGS = next(
    (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), ""
).split()
HAS_BF16 = "avx512_bf16" in CPU_FLAGS or "avx512bw" in CPU_FLAGS

RELU = EpilogueOp(Activation("relu"))
RELU6 = EpilogueOp(Activation("clip", 0.0, 6.0))


def add(operand: int) -> EpilogueOp:
    return EpilogueOp(Binary("add"), operand)


def conv(
    label: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    epilogue: tuple[EpilogueOp, ...] = (),
    *,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    pads_end: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    groups: int = 1,
    bias: bool = True,
    operands: tuple[Input, ...] = (),
    precision: DType = DType.F32,
    tolerance: float = 1e-5,
) -> Layer:
    """A Conv layer; by default stride and dilation 1 and the same padding on both sides."""
    rank = len(x) - 2
    begin = pads or (0,) * rank
    op = Conv(strides or (1,) * rank, begin, pads_end or begin, dilations or (1,) * rank, groups)
    own = (Input(x), Input(w, True, -0.3, 0.3), *((Input((w[0],), True),) if bias else ()))
    return Layer(label, op, (*own, *operands), epilogue, precision, tolerance)


CONVS = [
    conv("stem", (2, 3, 33, 31), (16, 3, 7, 7), (RELU,), strides=(2, 2), pads=(3, 3)),
    conv("1x1-residual", (1, 32, 9, 9), (64, 32, 1, 1), (add(3), RELU), operands=(Input((1, 64, 9, 9)),)),
    conv("3x3-residual", (2, 16, 9, 8), (48, 16, 3, 3), (add(3), RELU), pads=(1, 1), operands=(Input((2, 48, 9, 8)),)),
    conv("relu-then-residual", (1, 16, 8, 8), (16, 16, 3, 3), (RELU, add(3)), pads=(1, 1),
         operands=(Input((1, 16, 8, 8)),)),
    conv("relu-residual-relu6", (1, 16, 8, 8), (16, 16, 3, 3), (RELU, add(3), RELU6), pads=(1, 1),
         operands=(Input((1, 16, 8, 8)),)),
    conv("many-channels-residual", (1, 1088, 5, 5), (32, 1088, 3, 3), (add(3),), pads=(1, 1),
         operands=(Input((1, 32, 5, 5)),), tolerance=1e-4),
    conv("two-residuals", (1, 8, 7, 7), (24, 8, 1, 1), (add(3), add(4)),
         operands=(Input((1, 24, 7, 7)), Input((1, 24, 7, 7)))),
    conv("odd-channels", (2, 5, 11, 7), (7, 5, 3, 2), (RELU,), strides=(2, 1), pads=(1, 0), pads_end=(2, 1)),
    conv("odd-channels-residual", (1, 5, 7, 7), (13, 5, 3, 3), (add(3),), pads=(1, 1),
         operands=(Input((1, 13, 7, 7)),)),
    conv("dilated", (1, 16, 13, 13), (16, 16, 3, 3), (RELU,), pads=(2, 2), dilations=(2, 2)),
    conv("depthwise", (2, 24, 10, 10), (24, 1, 3, 3), (RELU6,), pads=(1, 1), groups=24),
    conv("depthwise-residual", (1, 16, 9, 9), (16, 1, 3, 3), (add(3),), pads=(1, 1), groups=16,
         operands=(Input((1, 16, 9, 9)),)),
    conv("multiplier", (1, 6, 9, 9), (12, 1, 3, 3), pads=(1, 1), groups=6),
    conv("grouped", (1, 32, 8, 8), (64, 8, 3, 3), (RELU,), strides=(2, 2), pads=(1, 1), groups=4),
    conv("grouped-odd", (1, 6, 8, 8), (9, 2, 3, 3), (add(3),), pads=(1, 1), groups=3, operands=(Input((1, 9, 8, 8)),)),
    conv("no-bias", (1, 8, 6, 6), (8, 8, 1, 1), bias=False),
    conv("whole-image", (2, 8, 5, 5), (10, 8, 5, 5)),
    conv("1d", (2, 8, 17), (12, 8, 3), (RELU,), strides=(2,), pads=(1,)),
    conv("3d", (1, 4, 5, 6, 7), (8, 4, 3, 3, 3), (RELU,), pads=(1, 1, 1)),
    conv("per-channel-mul", (1, 8, 6, 6), (16, 8, 1, 1), (EpilogueOp(Binary("mul"), 3), RELU),
         operands=(Input((16, 1, 1), True),)),
    conv("scalar-div", (1, 8, 6, 6), (16, 8, 1, 1), (EpilogueOp(Binary("div"), 3),),
         operands=(Input((), True, 1.0, 2.0),)),
    conv("sub-residual", (1, 8, 6, 6), (16, 8, 1, 1), (EpilogueOp(Binary("sub"), 3),),
         operands=(Input((1, 16, 6, 6)),)),
    conv("many-silu", (1, 8, 64, 32), (24, 8, 1, 1), (EpilogueOp(Activation("silu")),)),
    conv("pixel", (1, 40, 1, 1), (48, 40, 1, 1), (add(3), EpilogueOp(Binary("mul"), 4), EpilogueOp(Binary("div"), 5)),
         operands=(Input((1, 48, 1, 1)), Input((48, 1, 1), True), Input((), True, 1.0, 2.0))),
    conv("pixel-relu-then-residual", (1, 9, 1, 1), (11, 9, 1, 1), (RELU, add(3), add(4)),
         operands=(Input((1, 11, 1, 1)), Input((1, 11, 1, 1)))),
    *(
        conv(f"{label}-then-{op.function}", (1, 8, size, size), (16, 8, 1, 1), (EpilogueOp(op),))
        for label, size in (("pixels", 6), ("pixel", 1))
        for op in (
            Activation("leaky_relu", 0.1), Activation("sigmoid"), Activation("hard_sigmoid", 0.2, 0.5),
            Activation("hard_swish"), Activation("tanh"), Activation("softplus"), Activation("gelu"),
            Activation("gelu_tanh"), Activation("silu"), Activation("swish", 1.7), Activation("neg"), Activation("abs"),
            Activation("elu", 1.3), Activation("mish"), Activation("square"), RELU6.op, RELU.op, Activation("exp"),
        )
    ),
]  # fmt: skip


def matmul(
    label: str, a: tuple[int, ...], b: Input, op: MatMul, epilogue: tuple[EpilogueOp, ...] = (), *rest: Input
) -> Layer:
    return Layer(label, op, (Input(a), b, *rest), epilogue)


MATMULS = [
    matmul("fc", (3, 40), Input((24, 40), True), MatMul(transpose_b=True), (RELU,), Input((24,), True)),
    matmul("fc-one-row", (1, 64), Input((64, 30), True), MatMul(), (), Input((30,), True)),
    matmul("fc-one-long-row", (1, 700), Input((200, 700), True), MatMul(transpose_b=True), (RELU,)),
    matmul("a-transposed", (40, 3), Input((40, 24), True), MatMul(transpose_a=True)),
    matmul("batched", (2, 3, 5, 7), Input((2, 3, 7, 4)), MatMul()),
    matmul("batched-transposed", (2, 3, 5, 7), Input((2, 3, 4, 7)), MatMul(transpose_b=True)),
    matmul("broadcast", (2, 1, 5, 7), Input((3, 7, 4)), MatMul()),
    matmul("broadcast-left", (5, 7), Input((3, 7, 4)), MatMul()),
    matmul("tokens", (2, 9, 16), Input((16, 20), True), MatMul(), (add(2), RELU), Input((2, 9, 20))),
    matmul("tokens-bias-stage", (2, 9, 16), Input((16, 20), True), MatMul(), (add(2),), Input((20,), True)),
    matmul("residual", (4, 16), Input((16, 20), True), MatMul(), (add(3), RELU), Input((20,), True), Input((4, 20))),
]


def pool(label: str, x: tuple[int, ...], op: Pool) -> Layer:
    return Layer(label, op, (Input(x),))


POOLS = [
    pool("max", (2, 16, 15, 15), Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1))),
    pool("max-ceil", (1, 5, 14, 14), Pool("max", (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), ceil_mode=True)),
    pool("max-floored", (1, 8, 14, 13), Pool("max", (3, 3), (2, 2), (0, 0), (0, 0), (1, 1))),
    pool("average", (1, 8, 9, 9), Pool("average", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1))),
    pool(
        "average-padded", (1, 8, 9, 9), Pool("average", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), count_include_pad=True)
    ),
    pool("average-ceil", (1, 8, 8, 8), Pool("average", (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), ceil_mode=True)),
    pool("1d", (2, 8, 12), Pool("max", (2,), (2,), (0,), (0,), (1,))),
    pool("3d", (1, 8, 5, 6, 7), Pool("average", (2, 3, 2), (1, 2, 2), (0, 1, 0), (1, 1, 0), (1, 1, 1))),
]

OTHERS = [
    *(
        Layer(f"alone-{name}", Activation(name), (Input((2, 3, 5, 7), low=-9.0, high=9.0),))
        for name in ("sigmoid", "tanh", "softplus", "gelu", "gelu_tanh", "silu")
    ),
    # Where powers of e are next to infinity.
    *(
        Layer(f"far-{name}", Activation(name), (Input((30, 40), low=-89.5, high=-87.0),))
        for name in ("softplus", "gelu_tanh", "silu")
    ),
    Layer("alone-exp", Activation("exp"), (Input((2, 3, 5, 7)),)),
    Layer("lrn", Lrn(5, 1e-1, 0.75, 2.0), (Input((2, 19, 4, 3)),)),
    Layer("softmax-last", Softmax(1), (Input((3, 50), low=-20.0, high=20.0),)),
    Layer("softmax-channels", Softmax(1), (Input((2, 6, 4, 5)),)),
    Layer("softmax-width", Softmax(3), (Input((2, 6, 4, 5)),)),
]

IN_BF16 = [
    conv("bf16-residual", (2, 16, 9, 8), (48, 16, 3, 3), (add(3), RELU), pads=(1, 1), operands=(Input((2, 48, 9, 8)),),
         precision=DType.BF16, tolerance=1e-2),
    conv("bf16-odd", (1, 5, 9, 8), (7, 5, 3, 3), (RELU,), pads=(1, 1), precision=DType.BF16, tolerance=1e-2),
    conv("bf16-depthwise", (1, 16, 9, 8), (16, 1, 3, 3), (RELU,), pads=(1, 1), groups=16, precision=DType.BF16,
         tolerance=1e-2),
    Layer("bf16-fc", MatMul(transpose_b=True), (Input((3, 40)), Input((24, 40), True), Input((24,), True)), (RELU,),
          DType.BF16, 1e-2),
    Layer("bf16-pool", Pool("max", (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), (Input((1, 16, 9, 9)),), (), DType.BF16,
          1e-2),
    Layer("bf16-gelu", Activation("gelu"), (Input((1, 16, 9, 9)),), (), DType.BF16, 1e-2),
]  # fmt: skip

LONG = (
    Layer(
        "attention-long",
        Attention(1, 1, 0.3, causal=True),
        (Input((1, 1130, 8)), Input((1, 1200, 8)), Input((1, 1200, 12)), Input((1130, 1200), True)),
    ),
    Layer("attention-of-few", Attention(1, 1, 0.3), (Input((1, 40, 8)), Input((1, 1100, 8)), Input((1, 1100, 8)))),
)
"""More than one tile of keys, and of queries for each thread."""

TWO_MASKS = next(layer for layer in ATTENTION if layer.label == "attention-twice")
ONE_MASK = [layer for layer in ATTENTION if layer is not TWO_MASKS]

LAYERS = [*CONVS, *MATMULS, *POOLS, *OTHERS, *ONE_MASK, *LONG, *IN_BF16, *INTEGERS]
KERNELS = kernels_of(LAYERS, [OneDnn()])
AT = StepExpressions(tuple(f"in{index}" for index in range(10)), ("out",), tuple("abcdefghij"))


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    with shared_folder("onednn-kernels") as folder:
        return Library(KERNELS, folder)


@pytest.mark.parametrize("index", range(len(KERNELS)), ids=lambda index: KERNELS[index].label)
def test_agrees_with_numpy(library: Library, index: int) -> None:
    kernel: Kernel = KERNELS[index]
    if kernel.layer.precision is DType.BF16 and not HAS_BF16:
        pytest.skip("oneDNN computes in bf16 only on CPUs with AVX-512")
    for threads in (1, 2):
        result, wanted = library.run(index, threads)
        if result.dtype.kind in "iu":
            few_are_a_step_off(result, wanted)
            continue
        np.testing.assert_allclose(
            result.astype(np.float64), wanted, rtol=kernel.layer.tolerance, atol=kernel.layer.tolerance
        )


def test_products_of_integers_agree_where_their_sums_are_not_exact(
    library: Library, shared_folder: SharedFolder
) -> None:
    """On a CPU without VNNI, as oneDNN takes it for: it looks once a process."""
    chosen = [index for index, kernel in enumerate(KERNELS) if kernel.layer in INTEGERS]
    with shared_folder("onednn-kernels") as folder:
        code = (
            "from pathlib import Path; import test_families_onednn as t; "
            f"library = t.Library(t.KERNELS, Path({str(folder)!r})); "
            f"[t.test_agrees_with_numpy(library, index) for index in {chosen}]"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_every_layer_above_has_a_kernel() -> None:
    assert {kernel.layer.label for kernel in KERNELS} == {layer.label for layer in LAYERS}


def test_plans_compile_without_onednns_own_headers() -> None:
    """Those cost more than the rest of a plan: the family's own sources include them, once for all plans."""
    own = [path.read_text() for path in OneDnn().include_dir.rglob("*.h")]
    assert own
    assert not [text for text in own if "dnnl.h" in text or "dnnl::" in text]
    emitted = [kernel.family.emit(kernel.step.problem, Candidate("onednn"), HOST, AT) for kernel in KERNELS]
    assert not [code for code in emitted if "dnnl::" in code.member_arguments + code.call]


def test_a_residual_may_lie_where_the_output_will() -> None:
    shared = {kernel.layer.label for kernel in KERNELS if kernel.shared is not None}
    assert {"1x1-residual", "relu-then-residual", "two-residuals", "residual", "tokens", "bf16-residual"} <= shared
    assert "sub-residual" not in shared


def test_plans_of_several_batches_share_packed_weights(tmp_path: Path) -> None:
    layers = [conv(f"batch-{n}", (n, 64, 14, 14), (64, 64, 3, 3), (RELU,), pads=(1, 1)) for n in (1, 8)]
    library = Library(kernels_of(layers, [OneDnn()]), tmp_path)
    asked = []
    for index in range(2):
        library.run(index, 1)
        asked.append(library.shared_keys())
    assert len(asked[0]) == 2
    assert asked[0] == asked[1]


def test_a_convolution_does_not_overwrite_its_own_source() -> None:
    """x + conv(x): the residual's memory is still being read by the convolution."""
    x = TensorType(DType.F32, (1, 8, 4, 4))
    w = Value("w", TensorType(DType.F32, (8, 8, 1, 1)), Constant(np.ones((8, 8, 1, 1), np.float32)))
    node = Node("layer", Conv((1, 1), (0, 0), (0, 0), (1, 1)), ("x", "w", "x"), ("y",), (add(2),))
    graph = graph_of("one", 1, ["x"], ["y"], [Value("x", x), w, Value("y", x)], [node])
    ((alternative,), _) = OneDnn().propose(graph, node, HOST, DType.F32)
    assert alternative.steps[0].may_share == ()


REFUSED: list[tuple[Layer, str]] = [
    (TWO_MASKS, "attention adds one mask"),
    (
        Layer("bf16-attention", Attention(2, 2, 1.0, packed=True), (Input((1, 4, 24)),), (), DType.BF16),
        "oneDNN's plain products are in fp32",
    ),
    (
        conv("erf", (1, 8, 4, 4), (8, 8, 1, 1), (EpilogueOp(Activation("erf")),)),
        "oneDNN has no 'erf' to follow a kernel with",
    ),
    (
        conv("swapped", (1, 8, 4, 4), (8, 8, 1, 1), (EpilogueOp(Binary("sub"), 3, True),),
             operands=(Input((1, 8, 4, 4)),)),
        "oneDNN computes x sub operand, not operand sub x",
    ),
    (
        conv("f16", (1, 8, 4, 4), (8, 8, 1, 1), precision=DType.F16),
        "takes tensors in f32, bf16, not in f16",
    ),
    (
        Layer("weights", Conv((1, 1), (0, 0), (0, 0), (1, 1)), (Input((1, 8, 4, 4)), Input((8, 8, 1, 1)))),
        "weights and bias must be constants, to be packed when the engine loads",
    ),
    (
        conv("rows", (1, 8, 4, 4), (8, 8, 1, 1), (add(3),), operands=(Input((1, 1, 4, 1), True),)),
        "an epilogue operand [1, 1, 4, 1] is neither like [1, 8, 4, 4], per channel, nor a scalar",
    ),
    (
        pool("dilated", (1, 4, 9, 9), Pool("max", (2, 2), (1, 1), (0, 0), (0, 0), (2, 2))),
        "oneDNN has only a slow reference for dilated pooling",
    ),
    (
        pool("ceil-padded", (1, 4, 8, 8),
             Pool("average", (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), ceil_mode=True, count_include_pad=True)),
        "oneDNN counts cells of windows that reach beyond the padding (ceil_mode) unlike ONNX",
    ),
    (
        Layer("relu", Activation("relu"), (Input((1, 4)),)),
        "'relu' is as fast without oneDNN, or unknown to it",
    ),
    (
        Layer("mean", Reduce("mean", (2, 3)), (Input((1, 4, 3, 3)),)),
        "reduce is left to other families",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "reason"), REFUSED, ids=[layer.label for layer, _ in REFUSED])
def test_says_why_it_does_not(layer: Layer, reason: str) -> None:
    assert [refusal.reason for refusal in refusals_of(layer, OneDnn())] == [reason]
    assert kernels_of([layer], [OneDnn()]) == []
