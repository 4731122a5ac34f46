"""What an addition takes, counted: each is made in a scratch copy of the package, where it works, and what it touched
is what the table of CONTRIBUTING.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scratch_package import Scratch, scratch_copy, table, touches


def test_every_row_is_tried() -> None:
    """Here, but for figures: `test_figures.py` looks after them."""
    files = Path(__file__).parent.glob("test_contributing*.py")
    tried = [what for path in files for what in re.findall(r'touches\(scratch, "([^"]+)"', path.read_text("utf-8"))]
    assert sorted(table()) == sorted([*tried, "figure"])


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return scratch_copy(tmp_path)


OPERATOR = """\
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ir import Array, Op, TensorType


@dataclass(frozen=True)
class Triple(Op):
    kind = "triple"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return tuple(inputs)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (3 * inputs[0],)


def import_triple(node: NodeImport) -> None:
    node.emit(Triple(), [node.input(0)], 0)


IMPORTERS = (Importer("Triple", (1,), import_triple, domain="more"),)
"""
KERNEL = """\
from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.graph.ops.elementwise.triple import Triple


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    return StepCode(("bolt_portable/triple.h",), None, "", f"triple(r, {at.inputs[0]}, {at.outputs[0]});")


RULES = (Rule(Triple, computed_only, _emit, lambda problem: 0.02),)
"""
USE_OPERATOR = """\
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.onnx_import import importer_table
from bolt_build.graph.text import parse_graph
from bolt_build.targets import target_named

assert importer_table().find(OnnxNode("n", "DOMAIN", "Triple", 1, (), ())) is not None
graph = parse_graph("graph g batch=1 (%x: f32[2]) -> (%y) {\\n  %y = triple(%x) // \\"y\\"\\n}")
for name in ("host", "h200"):
    target = target_named(name)
    portable = load(target)[-1]
    (found, *_), _ = portable.propose(graph, graph.nodes[0], target, DType.F32)
    (candidate,), _ = portable.candidates(found.steps[0].problem, target)
    code = portable.emit(found.steps[0].problem, candidate, target, StepExpressions(("x",), ("y",), (None,)))
    print(name, SHOWN)
"""


def use(domain: str, shown: str) -> str:
    """A program that imports Triple, and prints what is `shown` of its code for a host and a GPU."""
    return USE_OPERATOR.replace("DOMAIN", domain).replace("SHOWN", shown)


def test_an_operator_is_a_file_and_its_kernels(scratch: Scratch) -> None:
    scratch.add("bolt_build/graph/ops/elementwise/triple.py", OPERATOR)
    scratch.add("bolt_build/families/portable/kernels/elementwise/triple.py", KERNEL)
    scratch.add("bolt_build/families/portable/include/bolt_portable/triple.h", "")
    assert scratch.run(use("more", "code.includes[0], code.call")) == (
        "host bolt_portable/triple.h triple(r, x, y);\nh200 bolt_portable/triple.h triple(r, x, y);\n"
    )
    touches(scratch, "operator", "triple")


ROW_OF_FUNCTIONS = '    "triple": Function(lambda x, a, b: 3 * x),'


def test_an_elementwise_function_is_a_row_its_importer_and_its_functor(scratch: Scratch) -> None:
    folder = "bolt_build/graph/ops/elementwise"
    header = "bolt_build/families/portable/include/bolt_portable/functions.h"
    functor = "struct Triple {\n  BOLT_HD float operator()(float x) const { return 3.0f * x; }\n};"
    scratch.line(f"{folder}/functions.py", '    "swish":', ROW_OF_FUNCTIONS)
    scratch.line(f"{folder}/activation.py", '    Importer("Swish"', '    Importer("Triple", (1,), import_plain),')
    scratch.line(header, "struct Softsign {", functor)
    assert scratch.run(use("", '"bolt::portable::Triple{}" in code.call')) == "host True\nh200 True\n"
    touches(scratch, "elementwise function", "triple")


KIND = """\
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.warps.warp import WarpTile
from bolt_build.families.cutlass.one_product import ProductKind


@dataclass(frozen=True)
class WideTile(WarpTile):
    header: ClassVar[str] = "_wide"

    @property
    def group(self) -> str:
        return "wide"

    @property
    def parameters(self) -> Named:
        return (("wide", 1), *super().parameters)

    @classmethod
    def read(cls, reader: Reader) -> WideTile:
        reader.number("wide")
        tile = WarpTile.read(reader)
        return cls(tile.m, tile.n, tile.k, tile.warp_m, tile.warp_n, tile.stages)


WIDE = ProductKind((WideTile(128, 128, 64, 64, 64, 3),), WideTile.read)
"""
USE_KIND = """\
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.graph.text import parse_graph
from bolt_build.targets import target_named

target = target_named("h200")
cutlass = load(target)[0]
graph = parse_graph(
    "graph g batch=128 (%x: f16[1024,1024]) -> (%y) {\\n  const %w: f16[1024,1024] #\\n"
    "  %y = matmul(%x, %w) // \\"y\\"\\n}"
)
(found, *_), _ = cutlass.propose(graph, graph.nodes[0], target, DType.F16)
problem = found.steps[0].problem
(wide, *_) = [each for each in cutlass.candidates(problem, target)[0] if dict(each.parameters).get("wide")]
assert cutlass.refuse(problem, wide, target) is None
(unit,) = cutlass.units([(problem, wide)], target)
print(wide.compiled, *[line for line in unit.text.splitlines() if "_wide_kernel.h" in line], sep="\\n")
"""


def test_a_kind_of_kernels_is_a_file_its_header_and_a_line(scratch: Scratch) -> None:
    scratch.add("bolt_build/families/cutlass/kinds/warps/wide.py", KIND)
    scratch.add("bolt_build/families/cutlass/include/bolt_cutlass/units/gemm_wide_kernel.h", "")
    registry = "bolt_build/families/cutlass/registry.py"
    scratch.line(registry, "    Pooled(),", "    WIDE,")
    scratch.line(
        registry,
        "from bolt_build.families.cutlass.one_product",
        "from bolt_build.families.cutlass.kinds.warps.wide import WIDE",
    )
    assert scratch.run(USE_KIND) == (
        "cutlass wide=1 m=128 n=128 k=64 warp_m=64 warp_n=64 stages=3\n"
        '#include "bolt_cutlass/units/gemm_wide_kernel.h"\n'
    )
    touches(scratch, "kernel kind", "wide")


PASS = """\
from __future__ import annotations

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.base import Journal, Pass, PassResult


def _run(graph: Graph) -> PassResult:
    journal = Journal(COUNT_NODES.name)
    journal.did(graph.name, "counted", f"{len(graph.nodes)} nodes")
    return journal.result(graph)


COUNT_NODES = Pass("count-nodes", _run)
"""
USE_PASS = """\
from bolt_build.graph.text import parse_graph
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.recipe import FusionPolicy, Policy

graph = parse_graph("graph g batch=1 (%x: f32[2]) -> (%y) {\\n  %y = relu(%x) // \\"y\\"\\n}")
for decision in optimize(graph, Policy(FusionPolicy(True, "never"))).decisions:
    print(decision.stage, decision.action, decision.reason)
"""


def test_a_pass_is_a_file_and_a_line(scratch: Scratch) -> None:
    scratch.add("bolt_build/planner/passes/tidy/count_nodes.py", PASS)
    pipeline = "bolt_build/planner/pipeline.py"
    scratch.line(pipeline, "    FUSE_EPILOGUES,", "    COUNT_NODES,")
    place = "bolt_build.planner.passes.tidy"
    scratch.line(pipeline, f"from {place}.dead", f"from {place}.count_nodes import COUNT_NODES")
    assert scratch.run(USE_PASS) == "count-nodes counted 1 nodes\n"
    touches(scratch, "pass", "count_nodes")


ROW = """\
    _cuda(
        "l40", "NVIDIA L40", _SM89, devices=("NVIDIA L40",),
        sms=142, l2_mib=96, memory_gib=48, bandwidth=864e9, fp16=181e12, fp32=90.5e12,
    ),"""
USE_ROW = """\
from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.graph.text import parse_graph
from bolt_build.targets import target_named

target = target_named("l40")
graph = parse_graph(
    "graph g batch=1 (%x: f32[1,64,14,14]) -> (%y) {\\n  const %w: f32[64,64,3,3] #\\n"
    "  %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // \\"y\\"\\n}"
)
(found, *_), _ = load(target)[0].propose(graph, graph.nodes[0], target, DType.F16)
print(found.family, target.arch, target.is_device("NVIDIA L40"), target.is_device("NVIDIA L4"))
"""


def test_a_gpu_of_a_known_architecture_is_a_row(scratch: Scratch) -> None:
    scratch.line("bolt_build/targets.py", "    # No kernel was measured on these two", ROW)
    assert scratch.run(USE_ROW) == "cutlass sm_89 True False\n"
    touches(scratch, "GPU of a known architecture", "l40")
