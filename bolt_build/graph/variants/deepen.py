"""1x1 convolutions behind a model's 3x3 ones, for persistent kernels to take along, as Bolt proposes.

The new convolution stands behind the activation that ends the block of the 3x3 one, so that where a block has branches,
as RepVGG's in training, they still merge into one 3x3, and the 1x1 follows its epilogue. It has the 3x3's channels in
and out, a bias, and a copy of the activation behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from bolt_build.graph.variants.activation import SWAPPABLE
from bolt_build.graph.variants.edited import EditedModel, called
from bolt_build.graph.variants.mistake import Mistake, VariantError

_KEY = "deepen.behind"
_WITHIN = ("BatchNormalization", "Add", "Sum", "Identity", "Dropout")
"""What may stand between a convolution and its block's activation."""
_ENDS = (*SWAPPABLE, "Sigmoid", "Tanh", "Clip")


@dataclass(frozen=True)
class _End:
    """A block's activation: its nodes, of which the last one makes `output`, and the tensor that they read."""

    nodes: tuple[onnx.NodeProto, ...]
    value: str

    @property
    def output(self) -> str:
        return str(self.nodes[-1].output[0])


def deepen(edited: EditedModel, glob: str) -> tuple[str, ...]:
    """Adds a 1x1 convolution for every block with a 3x3 one that `glob` matches; names of the new weights and biases,
    which are zeros.

    What the block handed on is now what the new activation gives, under the same name. Raises VariantError with every
    node that is matched and cannot be deepened.
    """
    ends: dict[str, tuple[_End, int]] = {}
    mistakes = []
    for conv in _convolutions(edited, glob):
        kernel = edited.shape(conv.input[1])
        if kernel is None or len(kernel) != 4 or kernel[2:] != (3, 3) or kernel[0] is None:
            shown = "x".join("?" if extent is None else str(extent) for extent in (kernel or ())[2:]) or "unknown"
            message = f"'{glob}' matches '{called(conv)}', whose kernel is {shown}, not 3x3"
            mistakes.append(Mistake(_KEY, "not-3x3", message, "narrow the glob to 3x3 convolutions"))
            continue
        end = _end_of(edited, conv)
        if isinstance(end, str):
            message = f"the block of '{called(conv)}' cannot be deepened: {end}"
            mistakes.append(Mistake(_KEY, "no-activation", message, "narrow the glob to blocks that end in one"))
        else:
            ends.setdefault(end.output, (end, kernel[0]))
    if mistakes:
        raise VariantError(mistakes)
    return tuple(name for end, channels in ends.values() for name in _insert(edited, end, channels))


def _convolutions(edited: EditedModel, glob: str) -> list[onnx.NodeProto]:
    matched = edited.matching(glob)
    found = [node for node in matched if node.op_type == "Conv"]
    if found:
        return found
    if not matched:
        raise VariantError([Mistake(_KEY, "no-match", f"'{glob}' matches no node of the model")])
    kinds = ", ".join(sorted({node.op_type for node in matched}))
    raise VariantError([Mistake(_KEY, "not-3x3", f"'{glob}' matches no convolution: only {kinds}")])


def _end_of(edited: EditedModel, conv: onnx.NodeProto) -> _End | str:
    """The activation that the convolution's result goes to, or why there is none."""
    value = conv.output[0]
    while True:
        readers = edited.readers(value)
        if len(readers) == 2 and value not in edited.outputs:
            gate, product = readers if readers[0].op_type == "Sigmoid" else readers[::-1]
            if _is_silu(edited, value, gate, product):
                return _End((gate, product), value)
        if len(readers) != 1 or value in edited.outputs:
            count = len(readers) + (value in edited.outputs)
            return f"'{value}' has {count} readers before any activation"
        node = readers[0]
        if node.op_type in _ENDS and node.input[0] == value:
            return _End((node,), value)
        if node.op_type not in _WITHIN:
            return f"'{called(node)}' ({node.op_type}) reads '{value}' before any activation"
        value = node.output[0]


def _is_silu(edited: EditedModel, value: str, gate: onnx.NodeProto, product: onnx.NodeProto) -> bool:
    """True for x * sigmoid(x)."""
    if (gate.op_type, product.op_type) != ("Sigmoid", "Mul") or edited.readers(gate.output[0]) != [product]:
        return False
    return sorted(product.input) == sorted((value, gate.output[0]))


def _insert(edited: EditedModel, end: _End, channels: int) -> tuple[str, str]:
    """The 1x1 convolution and its activation behind `end`; the names of its weight and bias."""
    last, output = end.nodes[-1], end.output
    scope = f"{called(last).removesuffix(f'/{last.op_type}')}/deepen"
    module, dtype = scope.removeprefix("/").replace("/", "."), edited.numpy_type(output)
    weight = edited.add_constant(f"{module}.weight", np.zeros((channels, channels, 1, 1), dtype))
    bias = edited.add_constant(f"{module}.bias", np.zeros(channels, dtype))
    shallow = edited.free(f"{scope}/input")
    conv = helper.make_node(
        "Conv", [shallow, weight, bias], [edited.free(f"{scope}/Conv_output_0")], name=edited.free(f"{scope}/Conv"),
        kernel_shape=[1, 1], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1,
    )  # fmt: skip
    for name in (shallow, conv.output[0]):
        edited.type_as(name, output)
    renamed = {end.value: conv.output[0], output: output}
    copies = []
    for node in end.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = edited.free(f"{scope}/{node.op_type}")
        for name in node.output:
            renamed.setdefault(name, edited.free(f"{scope}/{node.op_type}_output_0"))
        copy.input[:] = [renamed.get(name, name) for name in node.input]
        copy.output[:] = [renamed[name] for name in node.output]
        copies.append(copy)
    last.output[0] = shallow
    edited.put_in_place(last, [last, conv, *copies])
    return weight, bias
