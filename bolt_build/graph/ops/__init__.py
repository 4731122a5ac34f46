"""The operators of the IR, one file a group. Importing this package defines all of them."""

from bolt_build.graph.ir import Op
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.chain import Chain
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.normalization import BatchNorm, Lrn
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Cast, Concat, Convert, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.softmax import Softmax

OPS: tuple[type[Op], ...] = (
    Activation, BatchNorm, Binary, Cast, Concat, Conv, Convert, Identity, Lrn, MatMul, Pad, Pool, Reduce, Reshape,
    Slice, Softmax, Transpose,
)  # fmt: skip
"""Every operator class of the IR."""

OF_PROBLEMS: tuple[type[Op], ...] = (Chain,)
"""Operators that kernel problems have and graphs do not."""
