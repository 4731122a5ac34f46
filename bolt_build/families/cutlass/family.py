"""The CUTLASS family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.header_family import HeaderFamily
from bolt_build.families.common.refusals import refused
from bolt_build.families.common.stages import may_share
from bolt_build.families.common.units import distinct
from bolt_build.families.cutlass.kinds.kind import FAMILY
from bolt_build.families.cutlass.neighbours import around, behind_prologue, volume_norm_of, with_chain
from bolt_build.families.cutlass.offering import kind_for, offered, reads_apart, refusal_of
from bolt_build.families.cutlass.problems import flatten, stacked
from bolt_build.families.cutlass.problems.node_problems import alone, in_rows, pitched, problems_of
from bolt_build.families.cutlass.problems.products import multiplies
from bolt_build.families.cutlass.registry import kind_of, kinds_for
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.moves.stack import Stack
from bolt_build.graph.patterns.chains import chain_from, product_of_normed
from bolt_build.targets import Target


class Cutlass(HeaderFamily):
    """`Family` of convolutions and matrix products, with bias, residual and activations in the epilogue; of two of them
    in one kernel, of a convolution with the pooling or the movement of pixels behind it, and of one with what its input
    is multiplied by."""

    name = FAMILY
    folder = Path(__file__).parent

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        if isinstance(node.op, Reshape):
            return self._flattened(graph, node, target, precision)
        if isinstance(node.op, Stack):
            return self._stacked(graph, node, target, precision)
        if not multiplies(node.op):
            left = Refusal(self.name, node.name, f"{node.op.kind} is left to other families")
            of_rows = product_of_normed(graph, node)
            chain = of_rows or chain_from(graph, node)
            if chain is None:
                return (), (left,)
            form = in_rows if of_rows else alone
            together, apart = behind_prologue(graph, chain, target, precision, form)
            return together, (left, *apart)
        found: list[Alternative] = []
        refusals: list[Refusal] = []
        legal: list[KernelProblem] = []
        for problem in problems_of(graph, node, target, precision):
            offers, none = offered(problem, target)
            if not offers:
                refusals += none
            else:
                legal.append(problem)
                share, rows = may_share(problem, node.inputs, ()), pitched(problem)
                read = reads_apart(problem, target)
                step = ProposedStep(problem, node.inputs, node.outputs, share, pitched=rows, reads_apart=read)
                found.append(Alternative((node.name,), self.name, (step,), offers[0].seconds))
        why = refused(self.name, (node.name,), refusals)
        if not legal:
            return tuple(found), why
        together, apart = around(graph, node, legal[0], target, precision)
        chain = chain_from(graph, node)
        if chain is None:
            return (*found, *together), (*why, *apart)
        second = problems_of(graph, chain.second, target, precision)[0]
        joint, unchained = with_chain(graph, chain, legal, second, target)
        return (*found, *together, *joint), (*why, *apart, *unchained)

    def _flattened(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The reshape with the matrix product behind it."""
        product = flatten.reader(graph, node)
        if product is None or isinstance(product, str):
            reason = product or f"{node.op.kind} is left to other families"
            return (), (Refusal(self.name, node.name, reason),)
        problem = flatten.problem(graph, node, product, target, precision)
        offers, refusals = offered(problem, target)
        if not offers:
            return (), refused(self.name, (node.name,), refusals)
        steps = flatten.steps(graph, node, product, problem)
        return (Alternative((node.name, product.name), self.name, steps, offers[0].seconds),), ()

    def _stacked(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The stack of depths with the convolution behind it."""
        behind = stacked.readers(graph, node)
        if isinstance(behind, str):
            return (), (Refusal(self.name, node.name, behind),)
        problem = stacked.problem(graph, (node, *behind), target, precision)
        offers, refusals = offered(problem, target)
        if not offers:
            return (), refused(self.name, (node.name,), refusals)
        last = behind[1]
        region = (node.name, *(each.name for each in behind))
        names = (*node.inputs, *(name for name in last.inputs if name != behind[0].outputs[0]))
        share, apart = may_share(problem, names, ()), reads_apart(problem, target)
        step = ProposedStep(problem, names, last.outputs, share, pitched=(0,), reads_apart=apart)
        more = volume_norm_of(graph, (node, *behind), names, problem, target, precision)
        together, apart_why = more or ((), ())
        return (Alternative(region, self.name, (step,), offers[0].seconds), *together), apart_why

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """In the order of prediction, but for the first few, among which is one of each group of kernels."""
        found, refusals = offered(problem, target)
        return tuple(offer.candidate for offer in found), refusals

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        return kind_for(problem, candidate).variants(problem, candidate, target)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return kind_for(problem, candidate).predict(problem, candidate, target)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """Padded channels and copies of the input included; split-K's sums are not, which depend on the candidate."""
        kind = kinds_for(problem)[0] if candidate is None else kind_for(problem, candidate)
        return kind.expense(problem, candidate)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (refusal := refusal_of(problem, target)) is not None:
            return refusal.reason
        kind = kind_of(problem, candidate)
        return f"{candidate} is no kernel" if kind is None else kind.refuse(problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        return kind_for(problem, candidate).emit(problem, candidate, target, at)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """One instantiation each, so that an engine compiles its winners alone and tuning compiles none twice."""
        return distinct(kind_for(problem, candidate).unit(problem, candidate, target) for problem, candidate in steps)
