"""Problems and candidates read from the lines that locks and results have of them: the inverse of `describe_problem`.

A line does not say which operands are constants, nor how chains are nested. The digest that stands beside it does: what
is read has that digest, or it is not read at all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, TensorFormat
from bolt_build.graph.ir import EpilogueOp, Layout, Op
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.products.chain import Averaged, Chain, Kept, Normed
from bolt_build.graph.text_parser import Parser
from bolt_build.graph.text_tokens import TextError

TARGET = "h200"
_MOST_GUESSED = 10
"""Operands of which every choice of constants is tried where the likely ones are not it."""


@dataclass(frozen=True)
class _Member:
    """An operator of a problem, its own operands without what the one in front leaves, and the stages behind it."""

    op: Op
    own: tuple[Operand, ...]
    stages: tuple[EpilogueOp, ...]


class _Reader(Parser):
    """Recursive descent over one line."""

    def __init__(self, text: str) -> None:
        super().__init__(text, ())

    def problem(self) -> tuple[list[_Member], tuple[Operand, ...], int | None]:
        """Members, outputs, and what the recipe leaves of padding. Raises TextError."""
        members = [self._member()]
        while self._accept("|"):
            members.append(self._member())
        self._expect("->", "arrow")
        outputs = [self._operand()]
        while self._accept(","):
            outputs.append(self._operand())
        padding = 0 if self._accept("unpadded") else None
        if self._accept("padded"):
            self._expect_word("to")
            padding = self._int()
        return members, tuple(outputs), padding

    def _member(self) -> _Member:
        at = self._peek()
        word = self._next_word("an operator")
        own = [each for each in self._list("(", ")", self._given) if each is not None]
        op = self._op(word, self._attributes(), at, ())
        stages = []
        while self._peek().text == "|" and not self._begins_member():
            self._expect("|")
            stages.append(self._written_stage())
        return _Member(op, tuple(own), tuple(stages))

    def _begins_member(self) -> bool:
        """True behind a bar where an operator with operands of its own follows, and no stage."""
        return self._peek(2).text == "(" and self._peek(3).text != "@"

    def _written_stage(self) -> EpilogueOp:
        at = self._peek()
        word, operand = self._next_word("an epilogue function"), None
        if self._accept("("):
            self._expect("@")
            operand = self._int()
            self._expect(")")
        return EpilogueOp(self._op(word, self._attributes(), at, ()), operand, self._accept("swapped"))

    def _given(self) -> Operand | None:
        return None if self._accept("_") else self._operand()

    def _operand(self) -> Operand:
        type = self._type()
        layout = Layout.CHANNELS_LAST if self._accept(Layout.CHANNELS_LAST.value) else Layout.ROW
        return Operand(type.shape, TensorFormat(type.dtype, layout))


@functools.cache
def problem_of(what: str, digest: str) -> KernelProblem | None:
    """The problem of a line whose digest is `digest`; None where the line is of none that is known today."""
    try:
        members, outputs, padding = _Reader(what).problem()
    except TextError:
        return None
    inputs = tuple(operand for member in members for operand in member.own)
    for op in _nested(members):
        whole = KernelProblem(op, inputs, outputs, members[-1].stages, DType.F32, TARGET, padding)
        for constant in _constants(members):
            marked = tuple(replace(each, constant=is_one) for each, is_one in zip(inputs, constant, strict=True))
            found = replace(whole, inputs=marked)
            if found.digest == digest:
                return found
    return None


def _nested(members: list[_Member]) -> Iterator[Op]:
    """What the operators, one behind the other, may be as one."""
    first, *rest = members
    if not rest:
        yield first.op
        return
    for cls in (Chain, Kept, Averaged, Normed):
        op, operands, stages, move = first.op, len(first.own), first.stages, None
        for at, member in enumerate(rest):
            last = at == len(rest) - 1
            if isinstance(member.op, Transpose) and not last:
                move = member.op
                continue
            if last and cls is Normed:
                op = Normed(op, operands, stages, member.op, move)
            else:
                op = (cls if last else Chain)(op, operands, stages, member.op)
            operands, stages = operands + len(member.own), member.stages
        yield op


def _constants(members: list[_Member]) -> Iterator[tuple[bool, ...]]:
    """Which operands may be constants: the likely ones first."""
    stated = {stage.operand for member in members for stage in member.stages}
    own = [(member, place) for member in members for place in range(len(member.own))]
    likely = []
    for at, (member, place) in enumerate(own):
        operand = member.own[place]
        row = operand.format.layout is Layout.ROW
        likely.append(at > 0 and row and (at not in stated or sum(extent > 1 for extent in operand.shape) <= 1))
    yield tuple(likely)
    if len(own) <= _MOST_GUESSED:
        yield from product((False, True), repeat=len(own))


def text_of(candidate: Candidate) -> str:
    """`cutlass m=128 n=96 k=64 warpgroups=pingpong; swizzle=8`: settings stand behind a semicolon. A text of digits
    alone is in quotes: `tile="2048"`."""
    compiled = " ".join((candidate.family, *map(_pair, candidate.parameters)))
    settings = " ".join(map(_pair, candidate.settings))
    return f"{compiled}; {settings}" if settings else compiled


def _pair(pair: tuple[str, int | str]) -> str:
    name, value = pair
    return f'{name}="{value}"' if isinstance(value, str) and value.isdigit() else f"{name}={value}"


def candidate_of(text: str) -> Candidate:
    """What `text_of` made a text of."""
    compiled, _, settings = text.partition("; ")
    name, *parameters = compiled.split()
    return Candidate(name, tuple(map(pair_of, parameters)), tuple(map(pair_of, settings.split())))


def pair_of(word: str) -> tuple[str, int | str]:
    name, _, value = word.partition("=")
    return name, int(value) if value.isdigit() else value.strip('"')
