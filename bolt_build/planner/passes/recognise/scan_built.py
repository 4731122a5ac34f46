"""The operator that stands for the steps of a chain, and the nodes around it."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Node, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.recognise.norm_parts import number_of
from bolt_build.planner.passes.recognise.scan_chains import Chain, End
from bolt_build.planner.passes.recognise.scan_steps import Cut, Ref, Steps
from bolt_build.planner.passes.recognise.scan_terms import (
    MOST_INPUTS,
    MOST_TERMS,
    STEPS,
    Number,
    Read,
    Terms,
    Unlike,
    looked_through,
    terms_of,
)
from bolt_build.planner.rewrite import joined


class Built:
    """An operator that stands for the steps of an end. Raises Unlike where there is none."""

    def __init__(self, steps: Steps, end: End, chain: Chain, tainted: set[str]) -> None:
        self.steps, self.end, self.chain, self.tainted = steps, end, chain, tainted
        self.editor, self.count = steps.editor, chain.last - chain.first + 1
        self.terms = Terms(self.editor)
        self.reads: list[Read] = []
        self.added: list[tuple[str, tuple[str, ...]]] = []
        self.dtype = self.editor.type(end.values[-1]).dtype
        body, editor, terms = chain.body, self.editor, self.terms
        late = {place: len(body.slots) + at for at, (place, _, _) in enumerate(chain.shifted)}
        slots = [Number(("slot", at), terms.named(editor.type(value).shape)) for at, value in enumerate(body.slots)]
        leaves = []
        for place, values in enumerate(chain.leaves):
            if place in late:
                leaves.append(Number(("slot", late[place]), terms.named(editor.type(values[-1]).shape)))
                slots.append(leaves[-1])
            else:
                leaves.append(self._leaf(values))
        made = terms_of(body, terms, leaves, slots)
        held = {"leaf": leaves, "slot": slots, "term": made}
        self.result = held[body.roots[0][0]][body.roots[0][1]]
        carried = [held[kind][at] for kind, at in chain.carried] + [leaves[behind] for _, behind, _ in chain.shifted]
        begun = (*chain.begun, *(value for _, _, value in chain.shifted))
        states = []
        for slot, number, value in zip(slots, carried, begun, strict=True):
            terms.joined(slot.axes, number.axes)
            own = terms.named(editor.type(value).shape)
            terms.joined(slot.axes, own)
            states.append(self._of_graph(looked_through(editor, Read(value, own, (0,) * len(own)))))
        self.states, self.carried = states, carried
        self.axis = self._axis()
        backward = end.backward
        if any(read.value in tainted for read in (*self.reads, *states)):
            raise Unlike("a step also goes through what is no function of numbers")
        self._merge()
        if len(self.reads) + len(states) > MOST_INPUTS or len(terms.functions) > MOST_TERMS:
            raise Unlike(f"a step reads more than {MOST_INPUTS} tensors, or has more than {MOST_TERMS} functions")
        self.op = terms.operator(self.count, self.reads, states, carried, self.result, self.axis, backward)
        types = [self._stacked_type(read) if read.value.startswith("+") else editor.type(read.value)
                 for read in (*self.reads, *states)]  # fmt: skip
        try:
            self.op.infer(types)
        except ShapeError as reason:
            raise Unlike(str(reason)) from None

    def _axis(self) -> int:
        """The axis of the result in front of which steps stand."""
        if self.end.place < 0:
            return 0
        assert isinstance(self.end.node.op, Concat)
        return self.end.node.op.axis

    def _of_graph(self, read: Read) -> Read:
        if self.editor.type(read.value).dtype is not self.dtype:
            raise Unlike("reads tensors of other types")
        return read

    # -- what steps read -----------------------------------------------------------------------------------------

    def _leaf(self, values: tuple[str, ...]) -> Number:
        editor, terms = self.editor, self.terms
        cuts = [self.steps.cuts.get(value) for value in values]
        numbers = {number_of(editor, value) for value in values}
        if cuts[0] is None and (len(set(values)) == 1 or (len(numbers) == 1 and None not in numbers)):
            own = terms.named(editor.type(values[0]).shape)
            return Number(self._read(Read(values[0], own, (0,) * len(own))), own)
        if all(cut is not None for cut in cuts):
            number = self._along([cut for cut in cuts if cut is not None])
            if number is not None:
                return number
        return self._stacked(values)

    def _along(self, cuts: list[Cut]) -> Number | None:
        """Numbers of a tensor that steps go along, one place a step."""
        editor, first = self.editor, cuts[0]
        shape = editor.type(first.source).shape
        way = cuts[1].position - first.position if len(cuts) > 1 else 1
        if abs(way) != 1 or any(
            (cut.source, cut.axis, cut.kept) != (first.source, first.axis, first.kept)
            or cut.position != first.position + way * place
            for place, cut in enumerate(cuts)
        ):
            return None
        low = min(first.position, first.position + way * (self.count - 1))
        if low < 0 or low + self.count > shape[first.axis]:
            return None
        own = self.terms.named([1 if axis == first.axis else extent for axis, extent in enumerate(shape)])
        begin = tuple(low if axis == first.axis else 0 for axis in range(len(shape)))
        read = Read(first.source, tuple(STEPS if axis == first.axis else name for axis, name in enumerate(own)), begin,
                    way < 0)  # fmt: skip
        axes = tuple(name for axis, name in enumerate(own) if axis != first.axis or first.kept)
        readers = {reader.outputs[0] for reader in editor.readers(first.source)}
        whole = {value for value, cut in self.steps.cuts.items() if cut in cuts}
        return Number(self._inlined(read) if readers <= whole else self._read(read), axes)

    def _stacked(self, values: tuple[str, ...]) -> Number:
        """Numbers that lie in a tensor for each step: one concatenation puts them beside each other."""
        shapes = {self.editor.type(value).shape for value in values}
        if len(shapes) > 1 or any(value in self.tainted for value in values):
            raise Unlike("a step also goes through what is no function of numbers")
        values += values[-1:] * (self.count - len(values))
        own = self.terms.named(self.editor.type(values[0]).shape)
        name = f"+{len(self.added)}"
        self.added.append((name, values))
        return Number(self._read(Read(name, (STEPS, *own), (0,) * (1 + len(own)))), own)

    def _stacked_type(self, read: Read) -> TensorType:
        values = dict(self.added)[read.value]
        return TensorType(self.dtype, (len(values), *self.editor.type(values[0]).shape))

    def _read(self, read: Read) -> Ref:
        if not read.value.startswith("+"):
            read = self._of_graph(looked_through(self.editor, read))
        self.reads.append(read)
        return ("leaf", len(self.reads) - 1)

    def _inlined(self, read: Read) -> Ref:
        """Elementwise functions of a whole tensor are computed step by step where that reads fewer numbers."""
        read = looked_through(self.editor, read)
        trial = list[Read]()
        if not self._leaves_above(read, trial) or len(trial) < 2:
            return self._read(read)
        read_for = [self.editor.type(each.value).elements for each in trial if not self.editor.is_constant(each.value)]
        if sum(read_for) >= self.editor.type(read.value).elements:
            return self._read(read)
        return self._written(read)

    def _inner(self, read: Read) -> tuple[Node, list[Read]] | None:
        """The elementwise node that makes the tensor for this recurrence alone, and what it reads."""
        editor, node = self.editor, self.editor.producer(read.value)
        if node is None or node.epilogue or not isinstance(node.op, Activation | Binary):
            return None
        if editor.is_output(read.value) or read.value in self.steps.of:
            return None
        found = []
        for name in node.inputs:
            shape = editor.type(name).shape
            axes = [axis if extent != 1 else None
                    for axis, extent in zip(read.axes[len(read.axes) - len(shape):], shape, strict=True)]  # fmt: skip
            begin = [at if extent != 1 else 0
                     for at, extent in zip(read.begin[len(read.begin) - len(shape):], shape, strict=True)]  # fmt: skip
            inner = Read(name, tuple(axes), tuple(begin), read.backward)
            if STEPS not in axes:
                inner = replace(inner, backward=False)
            found.append(looked_through(editor, inner))
        return node, found

    def _leaves_above(self, read: Read, leaves: list[Read], first: bool = True) -> bool:
        """Adds what a tensor is computed from, and says whether it is computed at all."""
        inner = self._inner(read)
        private = first or not (len(self.editor.readers(read.value)) > 1 or self.editor.is_output(read.value))
        if inner is None or not private or len(leaves) > MOST_INPUTS:
            leaves.append(read)
            return False
        for each in inner[1]:
            self._leaves_above(each, leaves, first=False)
        return True

    def _written(self, read: Read, first: bool = True) -> Ref:
        inner = self._inner(read)
        private = first or len(self.editor.readers(read.value)) == 1
        if inner is None or not private:
            return self._read(read)
        node, given = inner
        refs = tuple(self._written(each, first=False) for each in given)
        numbers = (node.op.alpha, node.op.beta) if isinstance(node.op, Activation) else ()
        assert isinstance(node.op, Activation | Binary)
        return self.terms.add(node.op.function, refs, numbers)

    def _merge(self) -> None:
        """Tensors that are read twice alike are one input; those that are no constants come first."""
        terms, kept, places = self.terms, list[Read](), dict[int, int]()
        keys = dict[object, int]()
        constant = [not read.value.startswith("+") and self.editor.is_constant(read.value) for read in self.reads]
        for at in sorted(range(len(self.reads)), key=lambda at: constant[at]):
            read = self.reads[at]
            axes = tuple(axis if axis is None or axis == STEPS else terms.root(axis) for axis in read.axes)
            key = (read.value, axes, read.begin, read.backward)
            if key not in keys:
                keys[key] = len(kept)
                kept.append(read)
            places[at] = keys[key]
        self.reads = kept
        terms.operands = [
            tuple((kind, places[at] if kind == "leaf" else at) for kind, at in refs) for refs in terms.operands
        ]

        def moved(number: Number) -> Number:
            return replace(number, ref=("leaf", places[number.ref[1]])) if number.ref[0] == "leaf" else number

        self.result, self.carried = moved(self.result), [moved(each) for each in self.carried]

    # -- what stands for them ------------------------------------------------------------------------------------

    def replace(self) -> None:
        editor, end, node = self.editor, self.end, self.editor.node(self.end.node.name)
        assert node is not None
        before, names = list[Node](), {}
        for name, values in self.added:
            names[name] = self._beside(before, node, values)
        inputs = tuple(names.get(read.value, read.value) for read in (*self.reads, *self.states))
        shape = tuple(self.op.extents[axis] for axis in self.op.order)
        scan = editor.new_value(f"{node.outputs[0]}_scan", TensorType(self.dtype, shape))
        made = Node(f"{node.name}.scan", self.op, inputs, (scan,), covers=node.covers)
        after = [made]
        value = editor.type(end.values[-1]).shape
        if end.place < 0:
            (last,) = [TensorType(self.dtype, (1, *shape[1:]))]
            one = editor.new_value(f"{node.outputs[0]}_last", last)
            begin = (self.count - 1,) + (0,) * (len(shape) - 1)
            after.append(Node(f"{node.name}.last", Slice(begin, last.shape, (1,) * len(shape)), (scan,), (one,)))
            after.append(Node(node.name, Reshape(value), (one,), node.outputs, covers=node.covers))
        else:
            assert isinstance(node.op, Concat)
            whole = tuple(self.count if axis == node.op.axis else extent for axis, extent in enumerate(value))
            if self.count == len(node.inputs):
                after.append(Node(node.name, Reshape(whole), (scan,), node.outputs, covers=node.covers))
            else:
                shaped = editor.new_value(f"{node.outputs[0]}_steps", TensorType(self.dtype, whole))
                after.append(Node(f"{node.name}.steps", Reshape(whole), (scan,), (shaped,)))
                skipped = len(end.values) - self.count
                place = end.place + (0 if end.backward else skipped)
                left = (*node.inputs[:place], shaped, *node.inputs[place + self.count :])
                after.append(replace(node, inputs=left))
        editor.replace(node, *before, *after)
        removed = editor.prune(node.inputs)
        scan_node = editor.producer(scan)
        assert scan_node is not None
        covers = joined(*(each.covers for each in removed), scan_node.covers)
        editor.replace(scan_node, replace(scan_node, covers=covers))

    def _beside(self, before: list[Node], node: Node, values: tuple[str, ...]) -> str:
        editor, shape = self.editor, self.editor.type(values[0]).shape
        parts: dict[str, str] = {}
        for value in values:
            if value not in parts:
                part = editor.new_value(f"{value}_step", TensorType(self.dtype, (1, *shape)))
                before.append(Node(f"{node.name}.step.{len(before)}", Reshape((1, *shape)), (value,), (part,)))
                parts[value] = part
        made = editor.new_value(f"{node.outputs[0]}_stacked", TensorType(self.dtype, (len(values), *shape)))
        stacked = tuple(parts[value] for value in values)
        before.append(Node(f"{node.name}.stack.{len(before)}", Concat(0), stacked, (made,)))
        return made
