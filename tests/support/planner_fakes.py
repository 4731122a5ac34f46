"""A kernel family for planner tests: says yes to what it is told to, in the layouts it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from plain_family import PlainFamily

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    KernelProblem,
    Operand,
    ProposedStep,
    Refusal,
    TensorFormat,
)
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Convert, Reshape
from bolt_build.schema.recipe import (
    EngineSpec,
    FusionPolicy,
    IoSpec,
    LayerSpec,
    ModelSpec,
    Policy,
    Recipe,
    TargetSpec,
    VerifySpec,
)
from bolt_build.targets import HOST, Target

ROW, LAST = Layout.ROW, Layout.CHANNELS_LAST
POLICY = Policy(FusionPolicy(epilogue=True))
SPEC = TargetSpec("host", "fp32")
AS_MODEL = IoSpec("model", "model")


def recipe(io: IoSpec = AS_MODEL, layers: tuple[LayerSpec, ...] = (), fuse: bool = True) -> Recipe:
    """A recipe for the host with everything that planning reads."""
    return Recipe(
        "r.yaml", "tiny", ModelSpec("tiny.onnx", None, (1,), ()), (SPEC,), Policy(FusionPolicy(fuse)), layers,
        EngineSpec(io), VerifySpec("onnxruntime", 1, 0), (),
    )  # fmt: skip


@dataclass(frozen=True)
class Fake(PlainFamily):
    """`layouts` of a node it is willing to compute in (all tensors of a node alike); `seconds` a node and layout.

    Shape operators are views in row-major order, and elementwise ones may write over an input of the same size.
    """

    name: str = "fake"
    layouts: Callable[[Node], tuple[Layout, ...]] = lambda node: (ROW, LAST)
    seconds: Callable[[Node, Layout], float] = lambda node, layout: 1e-6
    conversion: float | None = 1e-6
    include_dir: Path = field(default=Path())
    sources: tuple[Path, ...] = ()

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        layouts = self.layouts(node)
        if not layouts:
            return (), (Refusal(self.name, node.name, f"does not do {node.op.kind}"),)
        if isinstance(node.op, Reshape):
            layouts = (ROW,)
        return tuple(self._alternative(graph, node, target, precision, layout) for layout in layouts), ()

    def _alternative(self, graph: Graph, node: Node, target: Target, precision: DType, layout: Layout) -> Alternative:
        def operand(name: str) -> Operand:
            type, constant = graph.type(name), graph.constant(name) is not None
            dtype = precision if type.dtype == DType.F32 else type.dtype
            order = ROW if constant or type.rank < 3 else layout
            return Operand(type.shape, TensorFormat(dtype, order), constant)

        inputs, outputs = tuple(map(operand, node.inputs)), tuple(map(operand, node.outputs))
        problem = KernelProblem(node.op, inputs, outputs, node.epilogue, DType.F32, target.name)
        pairs = enumerate(inputs)
        share: tuple[tuple[int, int], ...] = ()
        if isinstance(node.op, Activation | Binary):
            share = tuple((i, 0) for i, o in pairs if not o.constant and o.nbytes == outputs[0].nbytes)
        view = isinstance(node.op, Reshape)
        step = ProposedStep(problem, node.inputs, node.outputs, share, view)
        return Alternative((node.name,), self.name, (step,), self.seconds(node, layout))

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        if self.conversion is None:
            return None
        operands = Operand(shape, source), Operand(shape, to)
        problem = KernelProblem(Convert(), operands[:1], operands[1:], (), DType.F32, target.name)
        return problem, self.conversion

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        return (Candidate(self.name),), ()


FAKE = Fake()
HOST_TARGET = HOST
