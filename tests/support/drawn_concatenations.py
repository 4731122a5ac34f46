"""Graphs of concatenations, slices and reshapes, drawn for the tests of what copies nothing."""

from __future__ import annotations

from hypothesis import strategies as st
from planner_checks import graph

from bolt_build.graph.ir import Graph


@st.composite
def concatenations(draw: st.DrawFn) -> Graph:
    """Graphs full of concatenations and slices along any axis, with elementwise nodes that may work in place."""
    shape = (draw(st.sampled_from([1, 1, 2])), *(draw(st.sampled_from([1, 2, 4])) for _ in range(3)))
    found, lines, read = [("x", shape)], list[str](), set[str]()
    for index in range(draw(st.integers(2, 10))):
        name, (source, extents) = f"v{index}", draw(st.sampled_from(found))
        kind, axis = draw(st.sampled_from(["relu", "concat", "concat", "slice", "reshape"])), draw(st.integers(0, 3))
        reads = [source]
        if kind == "concat":
            alike = [n for n, e in found if all(e[a] == extents[a] for a in range(4) if a != axis)]
            reads += draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2))
            total = sum(dict(found)[n][axis] for n in reads)
            if total > 16:
                continue
            result = (*extents[:axis], total, *extents[axis + 1 :])
            text = f"concat({', '.join('%' + n for n in reads)}) axis={axis}"
        elif kind == "slice":
            begin = draw(st.integers(0, extents[axis] - 1))
            result = (*extents[:axis], draw(st.integers(1, extents[axis] - begin)), *extents[axis + 1 :])
            at = [begin if a == axis else 0 for a in range(4)]
            text = f"slice(%{source}) begin={at} count={list(result)} step=[1, 1, 1, 1]"
        elif kind == "reshape":
            result = (extents[0], extents[2], extents[1], extents[3])
            text = f"reshape(%{source}) shape={list(result)}"
        else:
            result, text = extents, f"{draw(st.sampled_from(['relu', 'tanh', 'neg']))}(%{source})"
        lines.append(f"%{name} = {text.replace(', ', ',') if kind != 'concat' else text}")
        read.update(reads)
        found.append((name, result))
    outputs = [name for name, _ in found if name not in read]
    head = f"graph g batch=1 (%x: f32[{','.join(map(str, shape))}]) -> ({', '.join('%' + n for n in outputs)}) {{"
    return graph("\n".join([head, *lines, "}"]))
