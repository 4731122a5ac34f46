"""Draws docs/build.svg: from `pip install` to a verified engine of an ONNX file, three commands in a terminal.

    python benchmarks/repository/recording.py [--model NAME_OF_THE_ZOO]

The commands run in a fresh folder with a fresh environment and nothing in bolt-build's cache; pip may have packages in
its own. The ONNX file stands for anybody's. Most of pip's lines, and most tasks, are left out, and tasks are counted.
Behind each command stands what it took. A last one shows what a change of the recipe would run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT

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


NAME = "my_net"


@dataclass(frozen=True)
class Shell:
    """Runs commands in `folder` with an environment of its own, whose programs come first."""

    folder: Path

    def run(self, command: str) -> tuple[list[str], float]:
        """The lines that it prints, and its seconds. Raises CalledProcessError where it fails."""
        own = {"HOME": str(self.folder.parent / "home"), "COLUMNS": str(WIDTH), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        path = os.pathsep.join((str(self.folder.parent / "venv" / "bin"), os.environ["PATH"]))
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        cache = os.environ.get("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip"))
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", f"{command} 2>&1"], cwd=self.folder, text=True, check=True, stdout=subprocess.PIPE,
            env={**kept, **own, "PATH": path, "PIP_CACHE_DIR": cache},
        )  # fmt: skip
        return done.stdout.splitlines(), time.monotonic() - begun


def shortened(lines: list[str]) -> list[str]:
    """The lines without most of the finished tasks (`[1/33] compile engine.cpp 0.7 s`); their number does."""
    tasks = [number for number, line in enumerate(lines) if line.startswith("[")]
    left_out = tasks[SHOWN:-SHOWN]
    if not left_out:
        return lines
    return [*lines[: left_out[0]], f"... {len(left_out)} more tasks", *lines[left_out[-1] + 1 :]]


def write_model(zoo_name: str, folder: Path) -> None:
    """`folder`/my_net.onnx, whose weights lie in the file."""
    (folder / "zoo.yaml").write_text(f"bolt: 1\nname: {NAME}\nmodel: {{zoo: {zoo_name}}}\ntargets: {{host: }}\n")
    command = [sys.executable, "-m", "bolt_build", "graph", "zoo.yaml", "--stage", "imported"]
    subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, stdout=subprocess.DEVNULL
    )
    for path in (folder / "generated" / NAME).glob("model.*"):
        path.rename(folder / path.name.replace("model", NAME, 1))
    shutil.rmtree(folder / "generated")
    (folder / "zoo.yaml").unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", help="of the zoo, in place of one's own")
    zoo_name = parser.parse_args().model
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "work")
        folder.mkdir()
        Path(place, "home").mkdir()
        write_model(zoo_name, folder)
        (folder / "bolt-build").symlink_to(ROOT)
        subprocess.run([sys.executable, "-m", "venv", str(Path(place, "venv"))], check=True)
        shell = Shell(folder)
        for command in (
            "pip install './bolt-build[host,verify]'", f"bolt-build init {NAME}.onnx --target host",
            f"bolt-build {NAME}.yaml", f"bolt-build {NAME}.yaml --set verify.samples=2 --dry-run",
        ):  # fmt: skip
            lines, seconds = shell.run(command)
            if command.startswith("pip"):
                (last,) = (line for line in lines if line.startswith("Successfully installed"))
                lines = [f"Successfully installed bolt-build and {len(last.split()) - 3} other packages"]
            console.print(Text.assemble((f"$ {command}", "bold green"), (f"   # {seconds:.1f} s", "dim")))
            for line in shortened(lines):
                console.print(Text(line.replace(str(folder) + "/", "")), overflow="ellipsis", no_wrap=True)
    svg = console.export_svg(title="bolt-build", theme=MONOKAI, code_format=_FORMAT, unique_id="build")
    PICTURE.write_text(svg, encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
