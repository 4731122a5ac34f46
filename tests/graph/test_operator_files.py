"""An operator is one file of `graph/ops`, and its kernel one of the portable family's: lying there is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest
from onnx import helper

from bolt_build.families.portable import kernels
from bolt_build.families.portable.rule import Rule
from bolt_build.graph import ops
from bolt_build.graph.ir import Array, Layout, Op, TensorType
from bolt_build.graph.ops import importers_of, operators_of
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.formula import Formula
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.lines import TopElements
from bolt_build.graph.ops.norms.row_sum import KeptRows, NormedRows, RowSum
from bolt_build.graph.ops.products.chain import Averaged, Chain, Kept, Normed
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.verify.emitter import Emitter
from bolt_build.verify.rounding import rounding_rules
from bolt_build.verify.rounding.rounding import Roundings, Work
from bolt_build.verify.rounding.rounding_rules import is_exact, variances_of


def file_with(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


@dataclass(frozen=True)
class Twice(Op):
    """An operator of a file called `twice`."""

    kind = "twice"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return (inputs[0],)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (inputs[0] + inputs[0],)


Twice.__module__ = "twice"


def test_every_file_of_the_folder_is_read_in_the_order_of_names() -> None:
    names = [module.__name__.rpartition(".")[2] for module in ops.MODULES]
    assert names == sorted(names)
    assert {"activation", "conv", "folding", "moving", "operands"} <= set(names)
    assert {each for module in ops.MODULES for each in operators_of([module])} == {*ops.OPS, *ops.OF_PROBLEMS}


def test_a_file_lies_in_a_folder_of_its_kin() -> None:
    """But what all operators read, and what is of no kin."""
    found = {package: {each.__name__ for each in package.MODULES} for package in (ops, kernels)}
    alone = {name.rpartition(".")[2] for package, names in found.items() for name in names
             if name.count(".") == package.__name__.count(".") + 1}  # fmt: skip
    assert alone == {"folding", "operands", "trees"}


def test_a_files_operators_are_the_classes_that_it_defines_itself() -> None:
    module = file_with("twice", Twice=Twice, Activation=Activation, Op=Op, Layout=Layout, number=3)
    assert operators_of([module]) == (Twice,)


def test_what_problems_alone_have_stands_apart() -> None:
    alone = {Averaged, Chain, FoldedFormula, Formula, Gated, Kept, KeptRows, Normed, NormedRows, RowSum, TopElements}
    assert alone == set(ops.OF_PROBLEMS)
    assert not set(ops.OF_PROBLEMS) & set(ops.OPS)


def test_a_file_without_importers_has_none() -> None:
    assert importers_of([file_with("bare")]) == ()
    assert importers_of([file_with("one", IMPORTERS=("it",))]) == ("it",)  # type: ignore[comparison-overlap]


def test_two_rules_for_one_operator_are_an_error() -> None:
    rule = Rule(Twice, lambda problem: None, lambda problem, at: pytest.fail("emits"), lambda problem: 1.0)
    assert kernels.rules_of([file_with("a", RULES=(rule,)), file_with("b")]) == {Twice: rule}
    with pytest.raises(ValueError, match=r"^two portable rules for twice$"):
        kernels.rules_of([file_with("a", RULES=(rule,)), file_with("b", RULES=(rule,))])


def work_of(op_type: str, outputs: int = 1) -> Work:
    names = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, ["x", "w"], names)
    roundings = Roundings(1.0, 1.0, 1.0, False)
    return Work(Emitter(18, "v"), node, ["x", "w"], ["a", None], names, [False, True], roundings, [])


def test_an_operator_that_verification_has_no_rule_for_is_pushed() -> None:
    """Its inputs change a little, and what its results do is what errors of that size do. Every output has a variance,
    and constants are not pushed."""
    work = work_of("Novel", outputs=2)
    first, second = variances_of(work)
    assert None not in (first, second)
    again = [node for node in work.emit.nodes if node.op_type == "Novel"]
    assert [list(node.input)[1] for node in again] == ["w", "w"]
    assert [len(node.output) for node in again] == [1, 2]
    assert not is_exact(work.node)


def test_an_operator_whose_importer_says_that_it_moves_elements_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    importers = (SimpleNamespace(op_type="Novel", domain="", moves=True),)
    monkeypatch.setattr(rounding_rules, "importer_table", lambda: SimpleNamespace(importers=lambda: importers))
    rounding_rules._movers.cache_clear()
    work = work_of("Novel")
    variances_of(work)
    assert [list(node.input) for node in work.emit.nodes] == [["a", "w"]]
    assert is_exact(work.node)
    monkeypatch.undo()
    rounding_rules._movers.cache_clear()
    assert not is_exact(work.node)


def test_weights_are_what_operators_say() -> None:
    """How many first inputs are stored as the layer is; the rest in fp32."""
    assert {op.kind: op.factors for op in ops.OPS if op.factors} == {
        "attention": 1, "channel_attention": 1, "chosen_matmul": 2, "conv": 2, "matmul": 2, "pair_product": 4,
        "placed_matmul": 2, "recurrent": 2,
    }  # fmt: skip
