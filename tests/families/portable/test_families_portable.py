"""Portable kernels: every operator agrees with NumPy in every layout offered and with every sharing of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from families_harness import Input, Kernel, Layer, Library, graph_with, kernels_of, refusals_of
from families_layers import LAYERS
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, Candidate, ProposedStep, StepCode, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels import RULES
from bolt_build.graph.ir import Constant, EpilogueOp, Layout, Node, TensorType, Value, graph_of
from bolt_build.graph.ops import OF_PROBLEMS, OPS
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Concat, Convert, Identity, Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct
from bolt_build.targets import HOST, target_named

KINDS = sorted({layer.op.kind for layer in LAYERS})
OFTEN_OPTIMISED = {"attention", "conv", "norm", "softmax"}
"""Of which every run has a kernel compiled as those of engines are; engines of typed models, which are compiled so too,
have more. The longer run has one of all."""

ALIKE = {"activation", "binary", "rearrange", "stack", "transpose"}
"""Of which every run has one kernel of each layer: half of all kernels are theirs, and differ in the order of elements
and in what they share."""


def firsts(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The first kernel of each operator."""
    return [*{type(kernel.layer.op): kernel for kernel in reversed(kernels)}.values()]


def sampled(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Of each layer two kernels, of the next layer those behind them: what every run has. The longer run has others."""
    layers: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        layers.setdefault(id(kernel.layer), []).append(kernel)
    found = []
    for number, of_one in enumerate(layers.values()):
        places = {number % len(of_one)}
        if of_one[0].layer.op.kind not in ALIKE:
            places.add((number + len(of_one) // 2) % len(of_one))
        found += [of_one[place] for place in sorted(places)]
    return found


def without(kernels: Sequence[Kernel], some: Sequence[Kernel]) -> list[Kernel]:
    return [kernel for kernel in kernels if all(kernel is not each for each in some)]


@pytest.fixture(scope="module")
def libraries(shared_folder: SharedFolder) -> tuple[Library, Library]:
    """The first kernel of some operators, compiled as those of engines are; and the others, without optimisation, in a
    fraction of the time."""
    kernels = kernels_of(LAYERS, [Portable()])
    some = [kernel for kernel in firsts(kernels) if kernel.layer.op.kind in OFTEN_OPTIMISED]
    others = without(sampled(kernels), some)
    with shared_folder("portable-kernels-optimized") as folder:
        optimized = Library(some, folder, HOST.compile_flags)
    with shared_folder("portable-kernels") as folder:
        return optimized, Library(others, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_numpy(libraries: tuple[Library, Library], kind: str) -> None:
    """All kernels of one operator: a test for each of a thousand would take as long as they do."""
    assert_all_agree(libraries, kind)


@pytest.fixture(scope="module")
def not_sampled(shared_folder: SharedFolder) -> Library:
    kernels = kernels_of(LAYERS, [Portable()])
    with shared_folder("portable-kernels-not-sampled") as folder:
        return Library(without(kernels, sampled(kernels)), folder)


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
def test_so_do_kernels_that_are_not_in_the_sample(not_sampled: Library, kind: str) -> None:
    if any(kernel.layer.op.kind == kind for kernel in not_sampled.kernels):
        assert_all_agree((not_sampled,), kind)


@pytest.fixture(scope="module")
def all_optimised(shared_folder: SharedFolder) -> Library:
    with shared_folder("all-portable-kernels-optimized") as folder:
        return Library(firsts(kernels_of(LAYERS, [Portable()])), folder, HOST.compile_flags)


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_numpy_as_engines_have_it(all_optimised: Library, kind: str) -> None:
    assert_all_agree((all_optimised,), kind)


def assert_all_agree(libraries: tuple[Library, ...], kind: str) -> None:
    found = [(of, i) for of in libraries for i, kernel in enumerate(of.kernels) if kernel.layer.op.kind == kind]
    assert found
    for library, index in found:
        try:
            assert_agrees(library, index)
        except AssertionError as error:
            error.add_note(library.kernels[index].label)
            raise


def assert_agrees(library: Library, index: int) -> None:
    tolerance = library.kernels[index].layer.tolerance
    for threads in (1, 2):
        result, wanted = library.run(index, threads)
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=tolerance, atol=tolerance)


def alternatives(layer: Layer, precision: DType = DType.F32) -> tuple[Alternative, ...]:
    graph, node = graph_with(layer)
    return Portable().propose(graph, node, HOST, precision)[0]


def steps(layer: Layer) -> list[ProposedStep]:
    return [alternative.steps[0] for alternative in alternatives(layer)]


def formats(step: ProposedStep) -> str:
    return f"{step.problem.inputs[0].format} -> {step.problem.outputs[0].format}"


def test_every_operator_has_a_rule() -> None:
    """No legal graph is without a kernel; what problems alone have stands apart, and what a pass makes for oneDNN."""
    assert set(OPS) - {QuantisedProduct} == set(RULES) - set(OF_PROBLEMS)


def test_every_activation_has_a_body() -> None:
    tried = {layer.op.function for layer in LAYERS if isinstance(layer.op, Activation)}
    assert tried == set(FUNCTIONS)


def test_offers_both_layouts_for_images_and_one_for_matrices() -> None:
    relu = Activation("relu")
    assert [formats(step) for step in steps(Layer("image", relu, (Input((1, 2, 3, 4)),)))] == [
        "f32/row -> f32/row",
        "f32/channels_last -> f32/channels_last",
    ]
    assert [formats(step) for step in steps(Layer("matrix", relu, (Input((3, 4)),)))] == ["f32/row -> f32/row"]


def test_stores_f32_of_the_model_in_the_layers_precision_and_constants_in_f32() -> None:
    layer = Layer("scale", Binary("mul"), (Input((1, 2, 3, 4)), Input((2, 1, 1), True)))
    problem = alternatives(layer, DType.BF16)[1].steps[0].problem
    assert [str(operand.format) for operand in (*problem.inputs, *problem.outputs)] == [
        "bf16/channels_last", "f32/row", "bf16/channels_last",
    ]  # fmt: skip


def test_stores_what_leaves_the_model_in_its_own_fp32_too() -> None:
    """In the place of a conversion behind it. A move of bytes stays one, of the fp32 that a model is given too."""

    def offered(layer: Layer) -> list[str]:
        return [formats(each.steps[0]) for each in alternatives(layer, DType.F16)]

    assert offered(Layer("softmax", Softmax(1), (Input((2, 3)),))) == ["f16/row -> f16/row", "f16/row -> f32/row"]
    assert offered(Layer("flat", Reshape((6,)), (Input((2, 3)),))) == ["f16/row -> f16/row", "f32/row -> f32/row"]
    assert offered(Layer("concat", Concat(0), (Input((2, 3)), Input((1, 3))))) == ["f16/row -> f16/row"]
    graph, node = graph_with(Layer("softmax", Softmax(1), (Input((2, 3)),)))
    inside = Portable().propose(replace(graph, outputs=()), node, HOST, DType.F16)[0]
    assert [formats(each.steps[0]) for each in inside] == ["f16/row -> f16/row"]


def test_what_stores_fp32_of_half_precision_says_so_in_its_code() -> None:
    """A kernel whose code names one type alone would read half precision as fp32."""
    names, alike = tuple(f"x{at}" for at in range(99)), []
    for layer in LAYERS:
        if any(given.dtype is not DType.F32 for given in layer.inputs if not given.constant):
            continue
        code: dict[StepCode, set[DType]] = {}
        for problem in (each.steps[0].problem for each in alternatives(layer, DType.F16)):
            (candidate, *_), _ = Portable().candidates(problem, HOST)
            given = names[: len(problem.inputs)]
            made = Portable().emit(problem, candidate, HOST, StepExpressions(given, ("y",), given))
            code.setdefault(made, set()).add(problem.outputs[0].format.dtype)
        alike += [layer.label for types in code.values() if len(types) > 1]
    assert alike == []


def test_stores_a_constant_that_is_only_moved_like_what_it_is_moved_with() -> None:
    layer = Layer("concat", Concat(1), (Input((2, 3, 4)), Input((2, 2, 4), True)))
    problem = alternatives(layer, DType.BF16)[0].steps[0].problem
    assert [str(operand.format) for operand in (*problem.inputs, *problem.outputs)] == ["bf16/row"] * 3


ROW = "f32/row -> f32/row"
LAST = "f32/channels_last -> f32/channels_last"


@pytest.mark.parametrize(
    ("layer", "views"),
    [
        (Layer("identity", Identity(), (Input((1, 2, 3, 4)),)), [ROW, LAST]),
        (Layer("reshape", Reshape((6, 4)), (Input((1, 2, 3, 4)),)), [ROW]),
        (Layer("flatten", Reshape((2, 9)), (Input((2, 9, 1, 1)),)), [ROW, "f32/channels_last -> f32/row"]),
        (Layer("to-nhwc", Transpose((0, 2, 3, 1)), (Input((1, 2, 3, 4)),)), ["f32/channels_last -> f32/row"]),
        (Layer("to-nchw", Transpose((0, 3, 1, 2)), (Input((1, 2, 3, 4)),)), ["f32/row -> f32/channels_last"]),
        (Layer("relu", Activation("relu"), (Input((1, 2, 3, 4)),)), []),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)  # fmt: skip
def test_knows_what_moves_no_bytes(layer: Layer, views: list[str]) -> None:
    assert [formats(step) for step in steps(layer) if step.view] == views


def test_elementwise_results_may_replace_any_operand_of_their_shape() -> None:
    layer = Layer("add", Binary("add"), (Input((2, 3)), Input((3,)), Input((2, 3))), (EpilogueOp(Binary("mul"), 2),))
    assert [step.may_share for step in steps(layer)] == [((0, 0), (2, 0))]


def test_gpus_compute_elements_of_rows_that_lie_apart_on_all_sides() -> None:
    """Parts of concatenations, such as the trunk of dense blocks; hosts would divide for each element."""
    x, family = Input((2, 16, 3, 3)), Portable()
    sums = (EpilogueOp(Binary("add"), 2),)
    layer = Layer("sum", Binary("mul"), (x, Input((1,), True), x), sums, precision=DType.F16)
    graph, node = graph_with(layer)
    image = family.propose(graph, node, target_named("h200"), layer.precision)[0][1].steps[0]
    assert (image.reads_apart, image.pitched) == ((0, 2), (0,))
    assert {(step.reads_apart, step.pitched) for step in steps(layer)} == {((0,), ())}
    at = StepExpressions(("x", "s", "r"), ("y",), (None, "s", None), (40,), (0, 0, 24))
    call = family.emit(image.problem, Candidate("portable", (("algorithm", "direct"),)), target_named("h200"), at).call
    assert "bolt::portable::apart_rows<bolt::portable::f16>(y, 16, 40)" in call
    assert "combine<bolt::portable::Add>(bolt::portable::apart<bolt::portable::f16>(r, 16, 24))" in call


def test_a_convolution_does_not_overwrite_its_own_source() -> None:
    """x + conv(x): the residual's memory is still being read by the convolution."""
    x = TensorType(DType.F32, (1, 8, 4, 4))
    w = Value("w", TensorType(DType.F32, (8, 8, 1, 1)), Constant(np.ones((8, 8, 1, 1), np.float32)))
    node = Node("layer", Conv((1, 1), (0, 0), (0, 0), (1, 1)), ("x", "w", "x"), ("y",), (EpilogueOp(Binary("add"), 2),))
    graph = graph_of("one", 1, ["x"], ["y"], [Value("x", x), w, Value("y", x)], [node])
    found, _ = Portable().propose(graph, node, HOST, DType.F32)
    assert [alternative.steps[0].may_share for alternative in found] == [(), ()]


REFUSED = [
    (
        Layer("booleans", Reduce("sum", (0,)), (Input((2, 3), dtype=DType.BOOL),)),
        "has no sum of booleans",
    ),
    (
        Layer("plane", Activation("relu"), (Input((2, 3, 4)), Input((3, 4), True)), (EpilogueOp(Binary("add"), 1),)),
        "an epilogue operand [3, 4] is neither like [2, 3, 4], per channel, nor a scalar",
    ),
    (
        Layer(
            "two-axes", Activation("relu"), (Input((2, 3)), Input((2, 1), True), Input((1, 3), True)),
            (EpilogueOp(Binary("add"), 1), EpilogueOp(Binary("add"), 2)),
        ),
        "epilogue operands follow different axes",
    ),
    (
        Layer("moved", Transpose((1, 0)), (Input((2, 3)),), (EpilogueOp(Activation("relu")),)),
        "transpose takes no epilogue",
    ),
    (
        Layer("concat", Concat(1), (Input((2, 3, 4)), Input((2, 2, 4), True))),
        "a constant among the inputs of a concat is row-major, the others are channels-last",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "reason"), REFUSED, ids=[layer.label for layer, _ in REFUSED])
def test_says_why_it_does_not(layer: Layer, reason: str) -> None:
    assert [refusal.reason for refusal in refusals_of(layer, Portable())] == [reason]


def test_a_window_that_changes_the_layout_is_refused() -> None:
    inputs = (Input((1, 4, 6, 6)), Input((8, 4, 3, 3), True), Input((8,), True))
    graph, node = graph_with(Layer("conv", Conv((1, 1), (1, 1), (1, 1), (1, 1)), inputs))
    (row, last), _ = Portable().propose(graph, node, HOST, DType.F32)
    problem, other = row.steps[0].problem, last.steps[0].problem
    mixed = replace(problem, outputs=other.outputs)
    candidates, refusals = Portable().candidates(mixed, HOST)
    assert candidates == ()
    assert [refusal.reason for refusal in refusals] == ["reads and writes in one layout, not row to channels_last"]


def test_converts_between_any_two_formats_of_floats() -> None:
    nhwc = TensorFormat(DType.BF16, Layout.CHANNELS_LAST)
    found = Portable().propose_conversion((1, 3, 8, 8), TensorFormat(DType.F32, Layout.ROW), nhwc, HOST)
    assert found is not None
    problem, seconds = found
    assert problem.op == Convert()
    assert seconds > 0.0
    assert Portable().candidates(problem, HOST)[0] != ()


def test_a_conversion_that_moves_nothing_is_free() -> None:
    row, last = TensorFormat(DType.F32, Layout.ROW), TensorFormat(DType.F32, Layout.CHANNELS_LAST)
    found = Portable().propose_conversion((4, 100, 1, 1), last, row, HOST)
    assert found is not None
    assert found[1] == 0.0


def test_does_not_convert_integers_to_floats() -> None:
    source, to = TensorFormat(DType.I64, Layout.ROW), TensorFormat(DType.F32, Layout.ROW)
    assert Portable().propose_conversion((4, 4), source, to, HOST) is None
