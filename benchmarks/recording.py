"""Draws docs/build.svg: what `bolt-build` says of a small recipe, as a terminal shows it.

    python benchmarks/recording.py [--recipe recipes/resnet18.yaml]

The commands run in a fresh folder. A build before them, in another, fills the cache, so that what is shown takes the
time of a build whose compilations another checkout has done. Most of its tasks are left out, and counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bolt_command import ROOT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = ROOT / "docs" / "build.svg"
WIDTH = 108
SHOWN = 4
"""Tasks that are shown at each end of a build."""

_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own, without the web font that it would load."""


def said(folder: Path, *words: str) -> list[str]:
    """The lines that `bolt-build WORDS` prints in `folder`. Raises CalledProcessError where it fails."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", "bolt_build", *words, "--cache", str(folder.parent / "cache")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return (done.stderr + done.stdout).splitlines()


def shortened(lines: list[str]) -> list[str]:
    """The lines without most of the finished tasks (`[1/33] compile engine.cpp 0.7 s`); their number does."""
    tasks = [number for number, line in enumerate(lines) if line.startswith("[")]
    left_out = tasks[SHOWN:-SHOWN]
    if not left_out:
        return lines
    return [*lines[: left_out[0]], f"... {len(left_out)} more tasks", *lines[left_out[-1] + 1 :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "resnet18.yaml")
    recipe = parser.parse_args().recipe
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as place:
        before, shown = Path(place, "before"), Path(place, "shown")
        for folder in (before, shown):
            folder.mkdir()
            shutil.copy(recipe, folder)
        said(before, recipe.name, "--target", "host")
        change = ("--target", "host", "--set", "verify.samples=2")
        for words in ((recipe.name, "--target", "host"), (recipe.name, *change, "--dry-run"), (recipe.name, *change)):
            console.print(Text(f"$ bolt-build {' '.join(words)}", "bold green"))
            for line in shortened(said(shown, *words)):
                console.print(Text(line.replace(str(shown) + "/", "")), overflow="ellipsis", no_wrap=True)
    svg = console.export_svg(title="bolt-build", theme=MONOKAI, code_format=_FORMAT, unique_id="build")
    PICTURE.write_text(svg, encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
