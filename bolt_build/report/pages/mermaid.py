"""Charts as Mermaid flowcharts, which GitHub, GitLab and many editors draw: https://mermaid.js.org/syntax/flowchart.html

One flowchart holds everything that a verb prints, a subgraph a batch of a target.
"""

from __future__ import annotations

from collections.abc import Iterator

from bolt_build.report.pages.chart import VIEW, Box, Chart, Group, fill, shade
from bolt_build.report.printable import printable


def mermaid(chart: Chart) -> str:
    """A box a step or node, coloured by its kernel and darker the more of the time it takes; an arrow a tensor."""
    lines = ["flowchart TD"]
    for group in chart.groups:
        lines += [
            f'  subgraph {group.name}["{_text(group.title)}"]',
            *(f"    {each}" for each in _inner(group)),
            "  end",
        ]
    styles: dict[str, str] = {}
    classes: dict[str, list[str]] = {}
    for number, group in enumerate(chart.groups):
        most = max((box.share or 0.0 for box in group.boxes), default=0.0)
        for box in (each for each in group.boxes if each.kernel):
            name = VIEW
            if box.kernel != VIEW:
                color, level = group.colors[box.kernel], shade(box.share, most)
                name = f"g{number}k{list(group.colors).index(box.kernel)}_{level}"
                styles[name] = f"fill:{fill(color, level)},stroke:{color},color:#1c2024"
            classes.setdefault(name, []).append(box.name)
    lines += [f"  classDef {name} {style}" for name, style in sorted(styles.items())]
    if VIEW in classes:
        lines.append("  classDef view fill:#ffffff,stroke:#5b636b,stroke-dasharray:4 3,color:#1c2024")
    lines += [f"  class {','.join(boxes)} {name}" for name, boxes in classes.items()]
    return "\n".join(lines) + "\n"


def _inner(group: Group) -> Iterator[str]:
    """Boxes in order, each followed by the arrows that end there."""
    for box in group.boxes:
        yield _box(box)
        for arrow in group.arrows:
            if arrow.to == box.name:
                yield (
                    f'{arrow.source} -->|"{_text(arrow.text)}"| {arrow.to}'
                    if arrow.text
                    else (f"{arrow.source} --> {arrow.to}")
                )


def _box(box: Box) -> str:
    text = "<br/>".join(map(_text, box.lines))
    return f'{box.name}["{text}"]' if box.kernel else f'{box.name}(["{text}"])'


def _text(text: str) -> str:
    """Text inside quotes: what Mermaid or HTML would take for its own is written by its number."""
    return "".join(f"#{ord(char)};" if char in '"#&<>`\\' else char for char in printable(text).replace("\n", " "))
