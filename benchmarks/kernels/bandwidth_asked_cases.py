"""Steps of exported models that the other sets lack: places of poolings, masks made of numbers, images of few channels,
and elements that lie far apart."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from benchmarks.kernels.bandwidth_graphs import Case, Engines, Make, Net
from benchmarks.kernels.bandwidth_odd_cases import INT64, beside, joined, pads, plain, resized, sliced, turned
from benchmarks.kernels.bandwidth_wide_cases import INT32, sized


def pooled_places(n: Net, case: str, x: str) -> str:
    """As networks write it that undo a pooling later."""
    return n.node(case, "MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], more=1)


def asked(op: str, *shape: int, dtype: int = INT64) -> Make:
    """A comparison with other numbers of the batch."""
    return lambda n, c, x: n.node(c, op, x, n.input(c, *shape, dtype=dtype, below=9))


def sampled(height: int, width: int, **attributes: str) -> Make:
    return lambda n, c, x: n.node(c, "GridSample", x, n.input(c, height, width, 2), mode="linear", **attributes)


ASKED = (
    Case("reduction", "pooled_places", (64, 112, 112), pooled_places),
    Case("reduction", "pooled_slices", (64, 8, 56, 56),
         plain("MaxPool", kernel_shape=[1, 3, 3], strides=[1, 2, 2], pads=[0, 1, 1, 0, 1, 1])),
    Case("chain", "same_ids", (1, 777), asked("Equal", 777, 1), INT64, 9),
    Case("chain", "ids_from", (1, 777), asked("GreaterOrEqual", 777, 1, dtype=INT32), INT32, 9),
    Case("chain", "pairs_below", (1, 777), beside("Less", 777, 1)),
    Case("chain", "hidden_keys", (8, 333, 333),
         lambda n, c, x: n.node(c, "Where", n.input(c, 1, 1, 333, dtype=TensorProto.BOOL),
                             n.constant(c, np.float32(-1e4)), x)),
    Case("chain", "selu_of_rows", (512, 1025), plain("Selu")),
    Case("movement", "one_hot_of_50", (8192,),
         lambda n, c, x: n.node(c, "OneHot", x, n.constant(c, np.array(50)), n.vector(c, 2)), INT64, 50),
    Case("movement", "cubic_colours", (3, 224, 224), sized("cubic", 3, 336, 336)),
    Case("movement", "linear_depth", (1, 192, 256), sized("linear", 1, 384, 512)),
    Case("movement", "nearest_of_19", (128, 19, 19), sized("nearest", 128, 38, 38)),
    Case("movement", "sampled_planes", (64, 64, 64), sampled(64, 64)),
    Case("movement", "tiled_rows", (33, 193), lambda n, c, x: n.node(c, "Tile", x, n.integers(c, 1, 49, 1))),
    Case("movement", "class_in_front", (4096, 255), joined(2, (4096, 1))),
    Case("movement", "one_of_5_ids", (16384, 5), sliced(2, 1, 3), INT64, 100),
    Case("movement", "one_of_40", (32768, 40), sliced(2, 3, 4)),
    Case("movement", "planes_back", (57, 57, 96), turned(0, 3, 1, 2)),
    Case("movement", "shuffle_of_255", (12, 255, 255), plain("DepthToSpace", blocksize=2, mode="CRD")),
)  # fmt: skip
"""Row-major tensors."""
ASKED_LAST = (
    Case("movement", "linear_colours_last", (3, 224, 224), sized("linear", 3, 384, 384)),
    Case("movement", "nearest_colours_last", (3, 224, 224), resized("nearest", 2, 2)),
    Case("movement", "nearest_of_4_last", (21, 64, 64),
         resized("nearest", 4, 4, coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    Case("movement", "reflected_colours_last", (3, 254, 254), pads("reflect", 0, 0, 3, 3, 0, 0, 3, 3)),
    Case("movement", "few_channels_joined", (27, 57, 57), joined(1, (3, 57, 57))),
    Case("reduction", "max_of_27", (27, 112, 112), plain("MaxPool", kernel_shape=[2, 2], strides=[2, 2])),
)  # fmt: skip
"""Images channels last."""
ASKED_SETS = {
    "asked": Engines(ASKED, batches=(32,), opset=21, layout=""),
    "asked_last": Engines(ASKED_LAST, batches=(32,), opset=21),
}
