"""The plan of an engine with two products in one kernel, and the unit of that kernel. That they fit together is said
where such an engine runs (`test_cli_emulate.py`), and such kernels (`test_emulated_kernels.py`)."""

from __future__ import annotations

import pytest
from pair_fakes import CHAIN_ON_H200, with_policy
from planner_checks import graph

from bolt_build.emit.engine import SourceFile, emit
from bolt_build.families import load
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.selection import Selection, Winner
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

H200 = target_named("h200")
FAMILIES = load(H200)


def planned(way: str) -> PlannedEngine:
    """The engine of one pair, with its first kernel that has the parameter `way`."""
    made = (graph(CHAIN_ON_H200),), with_policy("always"), TargetSpec("h200", "fp16"), H200, FAMILIES
    (outcome,) = plan_engine(*made).chains
    (cutlass,) = [family for family in FAMILIES if family.name == "cutlass"]
    candidates, _ = cutlass.candidates(outcome.chain.problem, H200)
    chosen = next(each for each in candidates if way in dict(each.parameters))
    return plan_engine(*made, Selection("a test", (Winner(outcome.chain.problem.digest, chosen, 2e-5),)))


def sources(way: str) -> dict[str, SourceFile]:
    return {file.path: file for file in emit(planned(way).plan, H200, FAMILIES)}


@pytest.mark.parametrize(("way", "header"), [("warpgroups", "_warpgroup"), ("through", "")])
def test_a_plan_holds_the_pair_and_its_unit_is_beside_it(way: str, header: str) -> None:
    files = sources(way)
    plan = files["plan_b32.cu"].text
    assert '#include "bolt_cutlass/plans/pair.h"' in plan
    assert "bolt::cutlass_kernels::PairConv<" in plan
    assert "// op      conv strides=(1, 1) pads_begin=(1, 1)" in plan
    assert "//         then conv strides=(1, 1) pads_begin=(0, 0)" in plan
    (unit,) = [file.text for path, file in files.items() if path.startswith("k_")]
    assert unit.startswith(f'#include "bolt_cutlass/units/conv_pair{header}_kernel.h"\n')
