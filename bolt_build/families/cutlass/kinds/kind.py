"""What the family asks of a kind of kernels, and what a kind offers for a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    Refusal,
    StepCode,
    StepExpressions,
)
from bolt_build.targets import Gpu, Target

FAMILY = "cutlass"
SPACE = "bolt::cutlass_kernels"


@dataclass(frozen=True)
class Offer:
    """A kernel for a problem, and its predicted seconds.

    Predictions compare kernels of one `group` more surely than those of different ones. `untried` says that nothing is
    known of the group by measurement.
    """

    seconds: float
    candidate: Candidate
    group: str
    untried: bool = False


@dataclass(frozen=True)
class Offers:
    """What a kind has for a problem: kernels, why other tiles are none and, in `none`, why all or most of them are."""

    found: tuple[Offer, ...] = ()
    none: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()


class Kind(Protocol):
    """A kind of kernels. A problem that it is asked about is one that it `serves`, on a GPU with tensor cores; a
    candidate is one that it `reads`."""

    def serves(self, problem: KernelProblem) -> bool:
        """True for problems of the sort that the kind is for, legal or not."""
        ...

    def offers(self, problem: KernelProblem, target: Target) -> Offers:
        """Its kernels for the problem, in any order."""
        ...

    def reads(self, candidate: Candidate) -> bool:
        """True where the candidate's parameters are those of a kernel of this kind."""
        ...

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        """`Family.refuse`."""
        ...

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """`Family.predict`."""
        ...

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """`Family.variants`."""
        ...

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """`Family.expense`."""
        ...

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        """`ProposedStep.reads_apart` of its kernels for a problem that has some."""
        ...

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        """`Family.emit`."""
        ...

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        """What instantiates the kernel."""
        ...


def gpu_of(target: Target) -> Gpu:
    """The row of the target's GPU."""
    assert target.gpu is not None, "kinds are asked about GPUs alone"
    return target.gpu
