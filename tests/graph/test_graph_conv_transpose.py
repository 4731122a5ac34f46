"""ConvTranspose as a plain convolution and a movement of its channels, against the sum that ONNX defines."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, saved, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model


def transposed(tmp_path: Path, x: Array, w: Array, bias: Array | None = None, **attributes: object) -> Graph:
    constants = {"w": w} if bias is None else {"w": w, "b": bias}
    nodes = [node("ConvTranspose", " ".join(("x", *constants)), "y", **attributes)]
    graph = bound(tmp_path, model(nodes, [tensor("x", x.shape)], constants=constants), batch=x.shape[0])
    check(graph)
    return graph


def defined(x: Array, w: Array, groups: int, strides: tuple[int, ...], dilations: tuple[int, ...],
            pads: tuple[int, ...], more: tuple[int, ...]) -> Array:  # fmt: skip
    """Every element of the input adds the kernel, times itself, to the cells from its place times the stride on."""
    count = x.ndim - 2
    whole = [
        (extent - 1) * stride + (taps - 1) * spacing + 1 + end
        for extent, stride, taps, spacing, end in zip(x.shape[2:], strides, w.shape[2:], dilations, more, strict=True)
    ]
    filters = w.shape[1]
    y = np.zeros((x.shape[0], groups * filters, *whole))
    for channel in range(x.shape[1]):
        first = channel // (x.shape[1] // groups) * filters
        for taps in product(*map(range, w.shape[2:])):
            at = tuple(
                slice(tap * spacing, tap * spacing + (extent - 1) * stride + 1, stride)
                for tap, spacing, extent, stride in zip(taps, dilations, x.shape[2:], strides, strict=True)
            )
            kernel = w[(channel, slice(None), *taps)].reshape(1, filters, *(1,) * count)
            y[(slice(None), slice(first, first + filters), *at)] += x[:, channel : channel + 1] * kernel
    kept = tuple(slice(pads[axis], extent - pads[axis + count]) for axis, extent in enumerate(whole))
    return y[(slice(None), slice(None), *kept)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    """Extents, kernel, strides, dilations, pads and output padding of one to three axes with something left."""
    count = draw(st.integers(1, 3))

    def entries(least: int, most: int, number: int = count) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(number))

    spatial, kernel, strides, dilations = entries(1, 4), entries(1, 4), entries(1, 3), entries(1, 2)
    more = tuple(draw(st.integers(0, stride - 1)) for stride in strides)
    pads = []
    for axis in range(count):
        whole = (spatial[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + more[axis]
        begin = draw(st.integers(0, min(3, whole - 1)))
        pads.append((begin, draw(st.integers(0, min(3, whole - 1 - begin)))))
    return spatial, kernel, strides, dilations, (*(pad[0] for pad in pads), *(pad[1] for pad in pads)), more


@given(case=cases(), groups=st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_any_attributes_give_the_defined_sum(tmp_path: Path, case: tuple[tuple[int, ...], ...], groups: int) -> None:
    spatial, kernel, strides, dilations, pads, more = case
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 2 * groups, *spatial)).astype(np.float32)
    w = random.standard_normal((2 * groups, 3, *kernel)).astype(np.float32)
    graph = transposed(
        tmp_path, x, w, group=groups, strides=strides, dilations=dilations, pads=pads, output_padding=more
    )
    wanted = defined(x.astype(float), w.astype(float), groups, strides, dilations, pads, more)
    np.testing.assert_allclose(reference.evaluate(graph, {"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)


def test_of_stride_1_it_is_one_convolution(tmp_path: Path) -> None:
    graph = transposed(tmp_path, np.zeros((1, 2, 5, 5), np.float32), np.ones((2, 3, 3, 3), np.float32), pads=[1] * 4)
    (only,) = graph.nodes
    assert only.op.kind == "conv"


def test_of_stride_2_its_channels_are_moved_and_the_border_is_cut(tmp_path: Path) -> None:
    x, w = np.zeros((1, 2, 5, 5), np.float32), np.ones((2, 3, 4, 4), np.float32)
    graph = transposed(tmp_path, x, w, np.ones(3, np.float32), strides=[2, 2], pads=[1] * 4)
    kinds = [each.op.kind for each in graph.nodes]
    assert kinds == ["conv", "reshape", "transpose", "reshape", "slice"]
    assert graph.type(graph.nodes[0].inputs[1]).shape == (12, 2, 2, 2)
    assert graph.type("y").shape == (1, 3, 10, 10)


def test_weights_may_be_data(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 2, 3)).astype(np.float32)
    w = random.standard_normal((2, 3, 4)).astype(np.float32)
    nodes = [node("ConvTranspose", "x w", "y", strides=[2])]
    proto = model(nodes, [tensor("x", [1, 2, 3]), tensor("w", [2, 3, 4])])
    found = reference.evaluate(bound(tmp_path, proto), {"x": x, "w": w})["y"]
    wanted = defined(x.astype(float), w.astype(float), 1, (2,), (1,), (0, 0), (0,))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


ODD = (
    "output_shape cuts 1 cells off spatial axis 0, an odd number: ONNX's text and its runtimes disagree about the side "
    "that loses more"
)
REFUSED = {
    "ConvTranspose 'ConvTranspose_0': pads 2 and 2 leave nothing of the 3 cells of spatial axis 0": {"pads": [2, 2]},
    "ConvTranspose 'ConvTranspose_0': strides [1, 1] has 2 entries for 1 spatial axes": {"strides": [1, 1]},
    "ConvTranspose 'ConvTranspose_0': kernel_shape [2] is not the weight's [3]": {"kernel_shape": [2]},
    "ConvTranspose 'ConvTranspose_0': auto_pad 'ROUND' is not supported": {"auto_pad": "ROUND"},
    "ConvTranspose 'ConvTranspose_0': the weight [2, 3, 3] does not fit an input of 2 channels in 3 groups": {
        "group": 3
    },
    "ConvTranspose 'ConvTranspose_0': strides and dilations must be at least 1, pads and output_padding at least 0": {
        "strides": [0]
    },
    f"ConvTranspose 'ConvTranspose_0': {ODD}": {"output_shape": [2]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, message: str) -> None:
    nodes = [node("ConvTranspose", "x w", "y", **REFUSED[message])]
    proto = model(nodes, [tensor("x", [1, 2, 1])], constants={"w": np.ones((2, 3, 3), np.float32)})
    path = saved(tmp_path, proto)
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(1)
    assert [each.message for each in raised.value.diagnostics] == [message]


def test_zeros_in_front_of_a_kernel_leave_nothing_to_cut_off(tmp_path: Path) -> None:
    """Three taps two cells apart are two for each phase, and the fourth is free."""
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 3, 3, 3), np.float32)
    made = transposed(tmp_path, x, w, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    assert made.nodes[-1].op.kind == "reshape"
