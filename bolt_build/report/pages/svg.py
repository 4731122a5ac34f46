"""Charts as SVG, laid out by Graphviz through pygraphviz, whose wheels bring Graphviz along: https://pygraphviz.github.io

Graphviz runs in this process; no program of its own is needed, and no font: it takes every letter to be as wide as the
others, so the picture is the same on every machine.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.pages.chart import VIEW, Box, Chart, Group, fill, shade
from bolt_build.report.printable import printable
from bolt_build.scratch import scratch_folder

_FONT = "Helvetica,Arial,sans-serif"
_LINE = 46
"""Letters in a line of a box; longer ones are broken."""
_INK, _DIM = "#1c2024", "#5b636b"


def svg(chart: Chart) -> str:
    """The picture as one file that loads nothing: a box a step or node, its kernel's colour darker the more of the time
    it takes, a table of kernels a batch, all that is known of a step when the pointer rests on it.

    Raises BoltError ("missing-tool") where pygraphviz is not installed.
    """
    with _no_fonts():
        try:
            # An extra that only pictures need.
            from pygraphviz import AGraph
        except ImportError as error:
            message = f"SVG is drawn by pygraphviz, which cannot be imported ({error})"
            hint = "python -m pip install 'pygraphviz>=2.0', or take --format mermaid"
            raise BoltError([Diagnostic("missing-tool", message, hint=hint)], ExitCode.TOOL_MISSING) from None
        graph = AGraph(directed=True, strict=False, rankdir="TB", fontname=_FONT, fontsize="15", nodesep="0.3",
                       ranksep="0.35", bgcolor="white")  # fmt: skip
        graph.node_attr.update(shape="box", fontname=_FONT, fontsize="11", fontcolor=_INK, margin="0.16,0.07")
        graph.edge_attr.update(fontname=_FONT, fontsize="9", fontcolor=_DIM, color=_DIM, arrowsize="0.6")
        for group in chart.groups:
            _add(graph, group)
        drawn: bytes = graph.draw(format="svg", prog="dot")
    return drawn.decode("utf-8")


def _add(graph: Any, group: Group) -> None:
    colors = group.colors
    most = max((box.share or 0.0 for box in group.boxes), default=0.0)
    for box in group.boxes:
        graph.add_node(box.name, label=_label(box), tooltip=_tip(box), **_style(box, colors, most))
    names = [box.name for box in group.boxes]
    if group.kernels:
        names.append(f"{group.name}k")
        graph.add_node(names[-1], shape="plain", label=_legend(group, colors), tooltip="kernels")
        if group.boxes:
            graph.add_edge(names[-1], group.boxes[0].name, style="invis")
    for arrow in group.arrows:
        graph.add_edge(arrow.source, arrow.to, label=arrow.text, tooltip=arrow.text)
    look = {"color": "#d8dce0", "style": "rounded", "labeljust": "l"}
    graph.add_subgraph(names, name=f"cluster_{group.name}", label=f"<{_text(group.title)}>", **look)


def _style(box: Box, colors: dict[str, str], most: float) -> dict[str, str]:
    if not box.kernel:
        return {"style": "rounded", "color": _INK}
    if box.kernel == VIEW:
        return {"style": "dashed", "color": _DIM}
    color = colors[box.kernel]
    return {"style": "filled", "fillcolor": fill(color, shade(box.share, most)), "color": color}


def _label(box: Box) -> str:
    """HTML-like, where what names hold is text: https://graphviz.org/doc/info/shapes.html#html

    Lines begin at the left: in the middle they would stand askew in another font than Graphviz had thought of.
    """
    first, *others = (textwrap.wrap(line, _LINE) or [" "] for line in box.lines)
    lines = [*(f"<b>{_text(part)}</b>" for part in first), *(_text(part) for line in others for part in line)]
    end = '<br align="left"/>'
    return f"<{end.join(lines)}{end}>"


def _tip(box: Box) -> str:
    return "\n".join(printable(line) for line in box.detail or box.lines).replace("\\", "\\\\")


def _legend(group: Group, colors: dict[str, str]) -> str:
    head = "".join(f'<td align="{side}"><b>{word}</b></td>' for word, side in _HEAD)
    rows = [
        f'<tr><td bgcolor="{colors[each.name]}" width="14"> </td><td align="left">{_text(each.name)}</td>'
        f'<td align="right">{each.steps}</td><td align="right">{each.time:.2f}</td>'
        f'<td align="right">{each.share:.1%}</td></tr>'
        for each in group.kernels
    ]
    return f'<<table border="0" cellspacing="0" cellpadding="3"><tr><td></td>{head}</tr>{"".join(rows)}</table>>'


_HEAD = (("kernel", "left"), ("steps", "right"), ("us", "right"), ("share", "right"))


def _text(text: str) -> str:
    return escape(printable(text).replace("\n", " "))


@contextmanager
def _no_fonts() -> Iterator[None]:
    """While Graphviz is loaded and draws, fontconfig finds an empty machine, and says nothing of this one's fonts."""
    before = {name: os.environ.pop(name) for name in _FONTCONFIG if name in os.environ}
    with scratch_folder() as folder:
        path = folder / "etc" / "fonts" / "fonts.conf"
        path.parent.mkdir(parents=True)
        path.write_text("<?xml version='1.0'?><fontconfig><cachedir>/cache</cachedir></fontconfig>")
        os.environ["FONTCONFIG_SYSROOT"] = str(folder)
        try:
            yield
        finally:
            del os.environ["FONTCONFIG_SYSROOT"]
            os.environ.update(before)


_FONTCONFIG = ("FONTCONFIG_FILE", "FONTCONFIG_PATH", "FONTCONFIG_SYSROOT")
