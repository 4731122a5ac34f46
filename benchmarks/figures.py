"""Puts every figure of the documents between its markers, from `results/*.json`.

    python benchmarks/figures.py            # writes them
    python benchmarks/figures.py --check    # says what is not as it would write it; the tests run this

A marker is `<!-- figures: NAME --><!-- / -->`: alone on its line for a table, within a line for a number. What makes
NAME is in `rendered/`. Nothing that was measured is typed by hand.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import ROOT, record, rendered

ELSEWHERE = frozenset({"onnx_nodes"})
"""Results that another script renders as well."""

RENAMED = {
    "exporters.py": "torch_exporters.py", "house.py": "code_metrics.py", "kinds.py": "roofline_by_kind.py",
    "other_networks.py": "untuned_networks.py", "other_steps.py": "untuned_steps.py", "steps.py": "ablation.py",
}  # fmt: skip
"""Scripts by the names that they had when they wrote results that are kept. A result's command is never edited."""

_MARKED = re.compile(r"<!-- figures: (?P<name>\S+) -->(?P<text>.*?)<!-- / -->", re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*$", re.DOTALL | re.MULTILINE)
_MEASURED = re.compile(r"\d+(?:\.\d+)?(?: (?:ms|us|ns|s|min|h|MB|GB|times)\b| ?%)")
"""A number with a unit that results have. Limits in the code are powers of two (MiB), or said in words."""


def documents(root: Path = ROOT) -> list[Path]:
    """What people read first, and everything under docs/ that no other script renders."""
    pages = (path for path in sorted((root / "docs").rglob("*.md")) if path.name != "operators.md")
    return [path for path in (root / "README.md", root / "CONTRIBUTING.md", *pages) if path.exists()]


def filled(text: str, figures: Mapping[str, str]) -> str:
    """The document with every known figure between its markers; a figure of several lines stands on its own lines."""

    def replaced(match: re.Match[str]) -> str:
        figure = figures.get(match["name"])
        if figure is None:
            return match[0]
        return f"<!-- figures: {match['name']} -->" + (f"\n{figure}\n" if "\n" in figure else figure) + "<!-- / -->"

    return _MARKED.sub(replaced, text)


def faults(name: str, text: str, figures: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with a document, each with its line."""
    for match in _MARKED.finditer(text):
        where = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        if match["name"] not in figures:
            near = difflib.get_close_matches(match["name"], figures, 1)
            yield f"{where}: there is no figure '{match['name']}'" + (f"; did you mean '{near[0]}'?" if near else "")
            continue
        begins = match.start() == 0 or text[match.start() - 1] == "\n"
        if begins and "\n" not in figures[match["name"]]:
            yield f"{where}: a number's marker begins a line, which Markdown shows as it stands; put a word before it"
    if filled(text, figures) != text:
        yield f"{name}: not what the results say; run python benchmarks/figures.py"
    bare = _CODE.sub(blank, _MARKED.sub(blank, text))
    for match in _MEASURED.finditer(bare):
        line = bare.count("\n", 0, match.start()) + 1
        yield f"{name}:{line}: '{match[0]}' is typed by hand; render it from a result, or say it without a unit"


def blank(match: re.Match[str]) -> str:
    """As many lines of nothing."""
    return "\n" * match[0].count("\n")


def unused(texts: Mapping[str, str], figures: Mapping[str, str]) -> Iterator[str]:
    """Figures that no document shows."""
    shown = {match["name"] for text in texts.values() for match in _MARKED.finditer(text)}
    for name in sorted(figures.keys() - shown):
        yield f"the figure '{name}' stands in no document"


def results_faults(results: Path, scripts: Path, read: set[str]) -> Iterator[str]:
    """Results that no figure is made of, and those that no script here wrote, in whatever folder it lies now."""
    names = {path.name for path in scripts.rglob("*.py")}
    for path in sorted(results.glob("*.json")):
        if path.stem not in read | ELSEWHERE:
            yield f"{path.name}: no figure is made of it"
        for command in sorted(commands(json.loads(path.read_text(encoding="utf-8")))):
            script = re.match(r"python benchmarks/(?:\w+/)*(\w+\.py)\b", command)
            if script is None or RENAMED.get(script[1], script[1]) not in names:
                yield f"{path.name}: written by '{command}', which is no script under benchmarks/"


def commands(result: object) -> set[str]:
    """The command in the head of a result, or of each of its kinds."""
    if not isinstance(result, dict):
        return set()
    if "command" in result:
        return {str(result["command"])}
    return {command for kind in result.get("kinds", {}).values() for command in commands(kind)} or {""}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where something is to be done")
    check = parser.parse_args().check
    figures = rendered.rendered(record.RESULTS)
    texts = {}
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if not check and filled(text, figures) != text:
            text = filled(text, figures)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
        texts[str(path.relative_to(ROOT))] = text
    found = [fault for name, text in texts.items() for fault in faults(name, text, figures)]
    found += unused(texts, figures)
    found += results_faults(record.RESULTS, Path(__file__).parent, rendered.read_results())
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
