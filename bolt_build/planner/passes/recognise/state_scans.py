"""Recognises recurrences that an exporter unrolled: the same functions in every step of a sequence, of the step's
numbers and of a state that the step in front leaves.

State spaces, linear attention and smoothing are loops over tokens in a model:

    for t in range(T): h = a[:, t] * h + b[:, t]; y.append((h * c[:, t]).sum(-1))

Exported, each token has six to thirty nodes, each of which moves a few numbers and waits for the one in front of it.
One operator goes through all steps, with the state in registers.
"""

from __future__ import annotations

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.scan_built import Built
from bolt_build.planner.passes.recognise.scan_chains import Chain, End, chain_of
from bolt_build.planner.passes.recognise.scan_steps import FEWEST, Body, Steps, cuts_of
from bolt_build.planner.passes.recognise.scan_terms import Unlike
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_SCANS.name)
    for descending in (False, True):
        cuts = cuts_of(editor)
        if not cuts:
            break
        steps = Steps(editor, cuts, descending)
        if steps.carries:
            for region in steps.regions():
                _region(steps, journal, region)
    return journal.result(editor.finish())


def _region(steps: Steps, journal: Journal, region: list[Node]) -> None:
    """Replaces all that is read of a region by operators, or nothing."""
    inside = {node.name for node in region}
    if len({steps.of[node.outputs[0]] for node in region}) < FEWEST - 1:
        return
    try:
        ends = _ends(steps, region, inside)
        found = [(end, chain_of(steps, end)) for end in ends]
        _check(steps, region, inside, found)
        made = [_built(steps, region, end, chain) for end, chain in found]
    except Unlike as reason:
        journal.declined(region[-1].name, f"scan: {reason}")
        return
    for (end, chain), build in zip(found, made, strict=True):
        build.replace()
        words = f"{chain.last - chain.first + 1} steps of {len(build.terms.functions)} functions and "
        words += f"{len(build.states)} state{'s' * (len(build.states) > 1)}"
        journal.did(end.node.name, "recognised a scan", words)


def _ends(steps: Steps, region: list[Node], inside: set[str]) -> list[End]:
    """All that others read of a region. What the last step computes and no other is left out of it."""
    editor = steps.editor
    last = max(steps.of[node.outputs[0]] for node in region)
    found: dict[str, End] = {}
    single: dict[str, End] = {}
    for node in reversed(region):
        value = node.outputs[0]
        outside = [reader for reader in editor.readers(value) if reader.name not in inside]
        for reader in outside:
            if reader.name not in found and (end := _concatenated(steps, reader, last)) is not None:
                found[reader.name] = end
        joined_by = {end.node.name for end in found.values() if value in end.values}
        if {reader.name for reader in outside} <= joined_by and not editor.is_output(value):
            continue
        if steps.of[value] != last:
            raise Unlike("a step's numbers are read by what is no step")
        alone = _single(steps, node)
        if alone is None:
            inside.discard(node.name)
        else:
            single[value] = alone
    if not found and not single:
        raise Unlike("nothing is read of its steps")
    return [*found.values(), *single.values()]


def _concatenated(steps: Steps, node: Node, last: int) -> End | None:
    """The steps up to the last that the node concatenates."""
    if not isinstance(node.op, Concat) or node.epilogue:
        return None
    shapes = [steps.editor.type(name).shape for name in node.inputs]
    at = [steps.of.get(name) if shape[node.op.axis] == 1 and name not in steps.cuts else None
          for name, shape in zip(node.inputs, shapes, strict=True)]  # fmt: skip
    if last not in at:
        return None
    for backward in (False, True):
        order = at[::-1] if backward else at
        end = len(order) - 1 - order[::-1].index(last)
        begin = end
        while begin > 0 and order[begin - 1] is not None and order[begin - 1] == order[begin] - 1:  # type: ignore[operator]
            begin -= 1
        if end - begin + 1 >= FEWEST - 1:
            names = node.inputs[::-1] if backward else node.inputs
            place = len(order) - 1 - end if backward else begin
            return End(node, tuple(names[begin : end + 1]), last - (end - begin), place, backward)
    return None


def _single(steps: Steps, node: Node) -> End | None:
    """The last step's number, with what is its like in the steps before."""
    value, last = node.outputs[0], steps.of[node.outputs[0]]
    body = Body()
    steps.walk(body, last, value)
    for slot in range(len(body.slots)):
        values = [value]
        while True:
            own = Body()
            step = steps.of[values[-1]]
            steps.walk(own, step, values[-1])
            if own.terms != body.terms or len(own.slots) <= slot:
                break
            before = own.slots[slot]
            if steps.of[before] != step - 1:
                break
            values.append(before)
        if len(values) >= FEWEST - 1:
            return End(node, tuple(reversed(values)), last - len(values) + 1)
    return None


def _check(steps: Steps, region: list[Node], inside: set[str], found: list[tuple[End, Chain]]) -> None:
    """Raises Unlike where something else needs what steps compute, which would be computed twice then."""
    editor = steps.editor
    taken: dict[str, set[str]] = {}
    for end, chain in found:
        kept = end.values[chain.first - end.first :]
        for value in kept if end.place >= 0 else (kept[-1],):
            taken.setdefault(value, set()).add(end.node.name)
    begins = min(chain.first for _, chain in found)
    for node in region:
        value = node.outputs[0]
        if node.name not in inside or steps.of[value] < begins:
            continue
        readers = {reader.name for reader in editor.readers(value)} - inside
        is_end = any(end.place < 0 and end.values[-1] == value for end, _ in found)
        if not is_end and (editor.is_output(value) or readers - taken.get(value, set())):
            raise Unlike("a step's numbers are read by what is no step")


def _built(steps: Steps, region: list[Node], end: End, chain: Chain) -> Built:
    tainted = {node.outputs[0] for node in region}
    tainted -= set(chain.begun)
    for node in steps.editor.nodes():
        if node.outputs[0] not in tainted and any(name in tainted for name in node.inputs):
            tainted.update(node.outputs)
    return Built(steps, end, chain, tainted)


RECOGNISE_SCANS = Pass("recognise-scans", _run)
"""Recurrences whose steps are functions of numbers and sums along one axis."""
