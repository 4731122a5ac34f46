"""Steps from a cover: kernel calls and conversions in execution order, their dependencies, and who stores what.

A `Storage` is one piece of memory; views and formats with the same bytes share their source's. Where storages of the
arena lie is the memory planner's business (`planner/memory.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import (
    Alternative,
    Candidate,
    KernelProblem,
    Operand,
    ProposedStep,
    TensorFormat,
    same_bytes,
)
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.planner.resolve import Cover
from bolt_build.planner.rewrite import joined
from bolt_build.planner.space import Conversion, SearchSpace
from bolt_build.targets import Target

VIEW = Candidate("view")
"""Stands for the kernel of a step that has none."""


@dataclass(frozen=True)
class Storage:
    """Memory of tensors: "arena", "input" or "output" (`at` is its index), or "weight" (`weight`, `dtype`)."""

    kind: str
    nbytes: int
    at: int = 0
    weight: str | None = None
    dtype: DType | None = None


@dataclass(frozen=True)
class ScheduledTensor:
    """A tensor of a step, in storage number `storage` from byte `offset` on; `onnx` is the ONNX tensor whose values it
    holds. Its rows lie `pitch` elements apart (0: dense)."""

    value: str
    operand: Operand
    storage: int
    onnx: str | None
    offset: int = 0
    pitch: int = 0


@dataclass(frozen=True)
class ScheduledStep:
    """One kernel call or view; `after` are indices of the steps that must have finished before it."""

    name: str
    covers: tuple[str, ...]
    problem: KernelProblem
    candidate: Candidate
    inputs: tuple[ScheduledTensor, ...]
    outputs: tuple[ScheduledTensor, ...]
    after: tuple[int, ...]
    may_share: tuple[tuple[int, int], ...] = ()
    view: bool = False
    pitched: tuple[int, ...] = ()
    reads_apart: tuple[int, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Steps in execution order over numbered storages."""

    steps: tuple[ScheduledStep, ...]
    storages: tuple[Storage, ...]

    def fills(self, tensor: ScheduledTensor) -> bool:
        """True where the tensor is all of its storage, not a part of it."""
        return tensor.offset == 0 and tensor.operand.nbytes == self.storages[tensor.storage].nbytes


def schedule(space: SearchSpace, cover: Cover, target: Target) -> Schedule:
    """Orders the cover's steps. Raises BoltError where an output needs a copy that no family can make."""
    builder = _Builder(space, cover, target)
    for alternative in cover.alternatives:
        builder.add(alternative)
    missing = builder.add_outputs()
    if missing:
        raise BoltError(missing)
    return Schedule(tuple(builder.steps), tuple(builder.storages))


class _Builder:
    def __init__(self, space: SearchSpace, cover: Cover, target: Target) -> None:
        self._space = space
        self._graph: Graph = space.graph
        self._places = {node.name: place for place, node in enumerate(self._graph.nodes)}
        self._queues = target.queues
        self._candidates = {(c.family, c.problem): c.candidates[0] for c in space.choices}
        self._producers = {name: a for a in cover.alternatives for step in a.steps for name in step.outputs}
        self._conversions = cover.conversions
        self._done: set[int] = set()
        self._made_by: dict[str, int] = {}
        self._available: dict[str, list[ScheduledTensor]] = {}
        self.steps: list[ScheduledStep] = []
        self.storages: list[Storage] = []
        for at, (name, format) in enumerate(space.fixed):
            operand = Operand(self._graph.type(name).shape, format)
            tensor = ScheduledTensor(
                name, operand, self._storage(Storage("input", operand.nbytes, at)), self._onnx(name)
            )
            self._available[name] = [tensor]

    def add(self, alternative: Alternative) -> None:
        """The alternative's steps, behind whatever they still need."""
        if id(alternative) in self._done:
            return
        self._done.add(id(alternative))
        inside = {name for step in alternative.steps for name in step.outputs}
        for step in alternative.steps:
            for name in step.inputs:
                if name not in inside and name in self._producers:
                    self.add(self._producers[name])
        for number, step in enumerate(alternative.steps):
            pairs = zip(step.inputs, step.problem.inputs, strict=True)
            inputs = tuple(self._obtain(name, operand) for name, operand in pairs)
            self._append_proposed(alternative, number, step, inputs)

    def _append_proposed(
        self, alternative: Alternative, number: int, step: ProposedStep, inputs: tuple[ScheduledTensor, ...]
    ) -> None:
        places = sorted(self._places[name] for name in alternative.region)
        nodes = [self._graph.nodes[place] for place in places]
        name, covers = _named(nodes, alternative, number)
        outputs = []
        for output, operand in zip(step.outputs, step.problem.outputs, strict=True):
            if step.view:
                storage, offset = inputs[0].storage, inputs[0].offset + step.offset
            else:
                storage, offset = self._storage(Storage("arena", operand.nbytes)), 0
            outputs.append(ScheduledTensor(output, operand, storage, self._onnx(output), offset))
        candidate = VIEW if step.view else self._candidates[alternative.family, step.problem]
        scheduled = ScheduledStep(
            name, covers, step.problem, candidate, inputs, tuple(outputs), (), step.may_share, step.view, step.pitched,
            step.reads_apart,
        )  # fmt: skip
        self._append(scheduled)

    def _append(self, step: ScheduledStep) -> None:
        index = len(self.steps)
        made = (self._made_by.get(tensor.value) for tensor in step.inputs)
        after = sorted({i for i in made if i is not None})
        if self._queues == 1:
            after = [index - 1] if index else []
        self.steps.append(replace(step, after=tuple(after)))
        for tensor in step.outputs:
            self._made_by[tensor.value] = index
            self._available.setdefault(tensor.value, []).append(tensor)

    def _obtain(self, name: str, wanted: Operand) -> ScheduledTensor:
        """The tensor as the operand asked for, converted first where the cover says so."""
        if self._graph.has(name) and self._graph.constant(name) is not None:
            return self._constant(name, wanted)
        found = self._find(name, wanted.format)
        if found is None:
            found = self._convert(name, self._planned(name, wanted))
        return replace(found, operand=replace(wanted, constant=False))

    def _planned(self, name: str, wanted: Operand) -> Conversion:
        """The cover's conversion of the value to the bytes of `wanted`."""
        for item in self._conversions:
            if item.value == name and same_bytes(wanted.shape, item.conversion.to, wanted.format):
                return item.conversion
        raise ValueError(f"'{name}' is read before it is made: regions of the cover wait for each other")

    def _find(self, name: str, format: TensorFormat) -> ScheduledTensor | None:
        """A tensor with the bytes of the value in `format`, called by the format that it was made in."""
        for tensor in self._available.get(name, ()):
            if same_bytes(tensor.operand.shape, tensor.operand.format, format):
                return tensor
        return None

    def _convert(self, name: str, conversion: Conversion) -> ScheduledTensor:
        source = self._obtain(name, Operand(conversion.shape, conversion.source))
        output = self._storage(Storage("arena", conversion.problem.outputs[0].nbytes))
        tensor = ScheduledTensor(f"{name}@{conversion.to}", conversion.problem.outputs[0], output, None)
        step = ScheduledStep(
            tensor.value, (), conversion.problem, self._candidates[conversion.family, conversion.problem],
            (source,), (tensor,), (),
        )  # fmt: skip
        self._append(step)
        self._available[name].append(tensor)
        return tensor

    def _constant(self, name: str, wanted: Operand) -> ScheduledTensor:
        format = TensorFormat(wanted.format.dtype, Layout.ROW)
        if not same_bytes(wanted.shape, format, wanted.format):
            raise ValueError(f"constant '{name}' is asked for as {wanted.format}, but constants are stored row-major")
        operand = replace(wanted, constant=True)
        known = next((t for t in self._available.get(name, ()) if t.operand.format == wanted.format), None)
        if known is not None:
            return known
        storage = self._storage(Storage("weight", operand.nbytes, weight=name, dtype=format.dtype))
        tensor = ScheduledTensor(name, operand, storage, self._onnx(name))
        self._available.setdefault(name, []).append(tensor)
        return tensor

    def add_outputs(self) -> list[Diagnostic]:
        """Gives each graph output its caller's buffer: its producer writes there, or a copy does where it cannot."""
        missing = []
        for at, (name, format) in enumerate(self._space.wanted):
            shape = self._graph.type(name).shape
            constant = self._graph.constant(name) is not None
            source = TensorFormat(format.dtype, Layout.ROW) if constant else format
            tensor = self._obtain(name, Operand(shape, source, constant))
            storage = self.storages[tensor.storage]
            whole = tensor.offset == 0 and tensor.operand.nbytes == storage.nbytes
            if storage.kind == "arena" and whole:
                self.storages[tensor.storage] = replace(storage, kind="output", at=at)
            elif not self._copy(name, tensor, source, format, at):
                message = f"output '{name}' needs a copy to {format} and no kernel family can make it"
                missing.append(Diagnostic("no-kernel", message, subject=name))
        return missing

    def _copy(self, name: str, tensor: ScheduledTensor, source: TensorFormat, to: TensorFormat, at: int) -> bool:
        shape, constant = tensor.operand.shape, tensor.operand.constant
        for copy in self._space.copies:
            same_source = (copy.shape, copy.source, copy.to) == (shape, source, to)
            if same_source and copy.problem.inputs[0].constant == constant:
                break
        else:
            return False
        output = self._storage(Storage("output", copy.problem.outputs[0].nbytes, at))
        written = ScheduledTensor(f"{name}@output{at}", copy.problem.outputs[0], output, self._onnx(name))
        step = ScheduledStep(
            written.value, (), copy.problem, self._candidates[copy.family, copy.problem], (tensor,), (written,), ()
        )
        self._append(step)
        return True

    def _storage(self, storage: Storage) -> int:
        self.storages.append(storage)
        return len(self.storages) - 1

    def _onnx(self, name: str) -> str | None:
        return name if self._graph.has(name) and not self._graph.value(name).synthetic else None


def _named(nodes: list[Node], alternative: Alternative, number: int) -> tuple[str, tuple[str, ...]]:
    """A step's name and the ONNX nodes it computes: those of the nodes whose outputs it writes, else of the region."""
    step = alternative.steps[number]
    own = [node for node in nodes if set(node.outputs) & set(step.outputs)]
    if len(alternative.steps) == 1:
        own = nodes
    if own:
        return own[-1].name, joined(*(node.covers for node in own))
    return f"{alternative.region[-1]}.{number}", joined(*(node.covers for node in nodes))
