"""The oneDNN kernels: convolution, matrix product, pooling, elementwise functions, normalisations."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.attention import bounds, keys_there, mask_images, mask_pointer, mask_steps
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import may_share
from bolt_build.families.onednn import quantised
from bolt_build.families.onednn.epilogue import (
    NO_CONSTANT,
    TYPES,
    constant,
    eltwise,
    emit_epilogue,
    in_place_operand,
    refuse_stages,
    refuse_types,
)
from bolt_build.families.onednn.matrices import matrices
from bolt_build.families.onednn.rule import Rule, channels_last, either, row_major
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct


def _share_residual(problem: KernelProblem, names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Only the operand that is emitted as a sum: other post-ops may read what a kernel has already overwritten."""
    return tuple(pair for pair in may_share(problem, names, ()) if pair[0] == in_place_operand(problem))


def _refuse_conv(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Conv)
    if not 3 <= len(problem.outputs[0].shape) <= 5:
        return "oneDNN convolves over one to three spatial axes"
    if min(*op.pads_begin, *op.pads_end) < 0:
        return "oneDNN has no convolution with negative pads"
    own = op_operands(problem)
    if not all(problem.inputs[index].constant for index in own[1:]):
        return "weights and bias must be constants, to be packed when the engine loads"
    return refuse_types(problem) or refuse_stages(problem, axis=1)


def _emit_conv(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Conv)
    own = op_operands(problem)
    shape = struct(
        "bolt::onednn::ConvShape",
        type=TYPES[output.format.dtype],
        source=braces(problem.inputs[own[0]].shape),
        weights=braces(problem.inputs[own[1]].shape),
        destination=braces(output.shape),
        strides=braces(op.strides),
        dilations=braces(op.dilations),
        pads_begin=braces(op.pads_begin),
        pads_end=braces(op.pads_end),
        groups=op.groups,
    )
    bias = constant(at, own[2]) if len(own) > 2 else NO_CONSTANT
    epilogue, passed = emit_epilogue(problem, at)
    arguments = f"{shape}, {constant(at, own[1])}, {bias}, {epilogue}"
    inputs = ", ".join((at.inputs[own[0]], *passed))
    call = f"kernel.run(r, {{{inputs}}}, {at.outputs[0]});"
    return StepCode(("bolt_onednn/conv.h",), "bolt::onednn::Conv", arguments, call)


def _refuse_matmul(problem: KernelProblem) -> str | None:
    own = op_operands(problem)
    if problem.inputs[own[0]].constant:
        return "the left operand must not be a constant"
    if len(own) > 2 and not problem.inputs[own[2]].constant:
        return "the bias must be a constant"
    axis = len(problem.outputs[0].shape) - 1
    return refuse_types(problem) or refuse_stages(problem, axis=axis)


def _emit_matmul(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, MatMul)
    own = op_operands(problem)
    left, right = (problem.inputs[index].shape for index in own[:2])
    a, b, c = matrices(op, left, right, problem.outputs[0].shape)
    shape = struct(
        "bolt::onednn::MatMulShape",
        type=TYPES[problem.outputs[0].format.dtype],
        a=braces(a),
        b=braces(b),
        c=braces(c),
        transpose_a=boolean(op.transpose_a),
        transpose_b=boolean(op.transpose_b),
    )
    bias = constant(at, own[2]) if len(own) > 2 else NO_CONSTANT
    packed = problem.inputs[own[1]].constant
    epilogue, passed = emit_epilogue(problem, at, c)
    factors = (constant(at, own[1]), bias) if packed else (bias,)
    inputs = ", ".join((at.inputs[own[0]], *(() if packed else (at.inputs[own[1]],)), *passed))
    return StepCode(
        ("bolt_onednn/matmul.h",),
        "bolt::onednn::MatMul",
        ", ".join((shape, *factors, epilogue)),
        f"kernel.run(r, {{{inputs}}}, {at.outputs[0]});",
    )


def _pads_end(problem: KernelProblem) -> tuple[int, ...]:
    """End pads with which the output's extents come out exactly: `ceil_mode` and floored strides change them."""
    op = problem.op
    assert isinstance(op, Pool)
    source, output = problem.inputs[0].shape[2:], problem.outputs[0].shape[2:]
    return tuple(
        (output[i] - 1) * op.strides[i] + (op.kernel[i] - 1) * op.dilations[i] + 1 - source[i] - op.pads_begin[i]
        for i in range(len(output))
    )


def _refuse_pool(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Pool)
    if not 3 <= len(problem.outputs[0].shape) <= 5:
        return "oneDNN pools over one to three spatial axes"
    if problem.epilogue:
        return "a pooling takes no epilogue in oneDNN"
    if any(dilation != 1 for dilation in op.dilations):
        return "oneDNN has only a slow reference for dilated pooling"
    ends = zip(_pads_end(problem), op.pads_end, op.kernel, strict=True)
    if any(needed >= kernel or (op.count_include_pad and needed > stated) for needed, stated, kernel in ends):
        return "oneDNN counts cells of windows that reach beyond the padding (ceil_mode) unlike ONNX"
    if op.mode == "max" and problem.outputs[0].format.dtype in (DType.I8, DType.U8):
        return None
    return refuse_types(problem)


def _emit_pool(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Pool)
    average = "average_with_padding" if op.count_include_pad else "average_without_padding"
    mode = "max" if op.mode == "max" else average
    shape = struct(
        "bolt::onednn::PoolShape",
        type=(TYPES | quantised.TYPES)[problem.outputs[0].format.dtype],
        source=braces(problem.inputs[0].shape),
        destination=braces(problem.outputs[0].shape),
        kernel=braces(op.kernel),
        strides=braces(op.strides),
        dilations=braces(op.dilations),
        pads_begin=braces(op.pads_begin),
        pads_end=braces(_pads_end(problem)),
    )
    call = f"kernel.run(r, {{{at.inputs[0]}}}, {at.outputs[0]});"
    return StepCode(("bolt_onednn/pool.h",), "bolt::onednn::Pool", f"bolt::onednn::Pooling::{mode}, {shape}", call)


_WORTH_A_CALL = ("sigmoid", "tanh", "softplus", "gelu", "gelu_tanh", "silu", "exp")


def _refuse_activation(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Activation)
    if op.function not in _WORTH_A_CALL:
        return f"'{op.function}' is as fast without oneDNN, or unknown to it"
    if problem.epilogue:
        return "an activation takes no epilogue in oneDNN"
    return refuse_types(problem)


def _emit_activation(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Activation)
    found = eltwise(op)
    assert found is not None
    algorithm, alpha, beta = found
    dtype = TYPES[output.format.dtype]
    function = f"bolt::onednn::Function::{algorithm}, {literal(alpha)}, {literal(beta)}"
    call = f"kernel.run(r, {{{at.inputs[0]}}}, {at.outputs[0]});"
    arguments = f"{dtype}, {prod(output.shape)}, {function}"
    return StepCode(("bolt_onednn/eltwise.h",), "bolt::onednn::Eltwise", arguments, call)


def _refuse_softmax(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Softmax)
    return "a softmax takes no epilogue in oneDNN" if problem.epilogue else refuse_types(problem)


def _emit_softmax(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Softmax)
    axes = list(range(len(output.shape)))
    if output.format.layout is Layout.CHANNELS_LAST:
        axes = [0, *axes[2:], 1]
    at_axis = axes.index(op.axis)
    extents = [output.shape[axis] for axis in axes]
    dims = braces((prod(extents[:at_axis]), extents[at_axis], prod(extents[at_axis + 1 :])))
    call = f"kernel.run(r, {{{at.inputs[0]}}}, {at.outputs[0]});"
    arguments = f"{TYPES[output.format.dtype]}, bolt::onednn::Dims{dims}"
    return StepCode(("bolt_onednn/softmax.h",), "bolt::onednn::Softmax", arguments, call)


def _refuse_attention(problem: KernelProblem) -> str | None:
    if problem.epilogue:
        return "attention takes no epilogue"
    assert isinstance(problem.op, Attention)
    if len(problem.op.masks(problem.inputs)) > 1:
        return "attention adds one mask"
    if any(operand.format.dtype is not DType.F32 for operand in (*problem.inputs, *problem.outputs)):
        return "oneDNN's plain products are in fp32"
    return None


def _emit_attention(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Attention)
    extents = op.extents([operand.type for operand in problem.inputs])
    own, kv = op.heads * extents.depth, op.kv_heads * extents.depth
    copies = 3 // op.sources
    shape = struct(
        "bolt::onednn::AttentionShape",
        batch=extents.batch,
        heads=op.heads,
        group=op.heads // op.kv_heads,
        queries=extents.queries,
        keys=extents.keys,
        depth=extents.depth,
        columns=extents.columns,
        row=braces([operand.shape[2] for operand in problem.inputs[: op.sources]] * copies),
        mask=braces(mask_steps(problem)),
        mask_images=mask_images(problem),
        scale=literal(op.scale),
        causal=boolean(op.causal),
        safe=boolean(op.safe),
        tied=boolean(op.tied),
        **keys_there(op),
        **bounds(op),
        **({"sink_step": str(int(problem.inputs[-1].shape[0] > 1))} if op.sunk else {}),
    )
    first = (0, own, own + kv) if op.packed else (0, 0, 0)
    pointers = [
        f"static_cast<const float*>({pointer}) + {begin}"
        for pointer, begin in zip(list(at.inputs[: op.sources]) * copies, first, strict=True)
    ]
    masked = bool(op.masks(at.inputs))
    pointers.append(f"static_cast<const float*>({mask_pointer(problem, at)})" if masked else "nullptr")
    pointers.append(f"static_cast<float*>({at.outputs[0]})")
    pointers += [f"static_cast<const float*>({sinks})" for sinks in op.sinks(at.inputs)]
    call = f"bolt::onednn::attention(r, {shape}, {', '.join(pointers)});"
    return StepCode(("bolt_onednn/attention.h",), None, "", call)


def _refuse_lrn(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, Lrn)
    if problem.epilogue:
        return "a local response normalisation takes no epilogue in oneDNN"
    if op.size % 2 == 0:
        return "oneDNN normalises over an odd number of channels"
    if len(problem.outputs[0].shape) != 4:
        return "oneDNN normalises images"
    return refuse_types(problem)


def _emit_lrn(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, Lrn)
    dims = f"bolt::onednn::Dims{braces(output.shape)}"
    attributes = f"{op.size}, {literal(op.alpha)}, {literal(op.beta)}, {literal(op.bias)}"
    call = f"kernel.run(r, {{{at.inputs[0]}}}, {at.outputs[0]});"
    arguments = f"{TYPES[output.format.dtype]}, {dims}, {attributes}"
    return StepCode(("bolt_onednn/lrn.h",), "bolt::onednn::Lrn", arguments, call)


def _share_input(problem: KernelProblem, names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    return may_share(problem, names, (0,))


RULES: dict[type[Op], Rule] = {
    rule.op: rule
    for rule in (
        Rule(Conv, "convolution", channels_last, _refuse_conv, _emit_conv, 0.7, _share_residual),
        Rule(MatMul, "matmul", row_major, _refuse_matmul, _emit_matmul, 0.7, _share_residual),
        Rule(
            QuantisedProduct,
            "integers",
            quantised.layouts,
            quantised.refuse,
            quantised.emit,
            2.0,
            quantised.share_residual,
        ),
        Rule(Pool, "pooling", channels_last, _refuse_pool, _emit_pool, 0.1),
        Rule(Activation, "eltwise", either, _refuse_activation, _emit_activation, 0.01, _share_input),
        Rule(Lrn, "lrn", channels_last, _refuse_lrn, _emit_lrn, 0.05),
        Rule(Attention, "attention", row_major, _refuse_attention, _emit_attention, 0.4),
        Rule(Softmax, "softmax", either, _refuse_softmax, _emit_softmax, 0.01, _share_input),
    )
}
