"""Plans and sources do not depend on how a process orders sets, nor on the folder that it runs in."""

from __future__ import annotations

from pathlib import Path

from hash_orders import printed_in_other_orders
from pair_fakes import CHAIN_ON_H200, with_policy
from planner_checks import graph
from test_planner_engine import net, planned
from tiny_engine import FACTS

from bolt_build.digest import digest
from bolt_build.emit.engine import emit
from bolt_build.families import load
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named


def plan_digest() -> str:
    return digest(planned(net(1), net(4)).plan)


def sources_digest() -> str:
    """Of an engine for a GPU: of several families, with units beside the plan."""
    target = target_named("h200")
    families = load(target)
    spec = TargetSpec(target.name, "fp16")
    plan = plan_engine((graph(CHAIN_ON_H200),), with_policy("always"), spec, target, families).plan
    return digest({file.path: file.text for file in emit(plan, target, families, FACTS)})


def test_equal_questions_have_equal_answers_everywhere(tmp_path: Path) -> None:
    code = "import test_hash_orders as t; print(t.plan_digest(), t.sources_digest())"
    assert printed_in_other_orders(code, tmp_path) == {f"{plan_digest()} {sources_digest()}"}
