"""How long a stranger waits: from a fresh clone to a verified engine, and what each kind of change costs afterwards.

    python benchmarks/builds/build_times.py                    # the host engine, then changes to its recipe
    python benchmarks/builds/build_times.py --all-targets      # every target of the recipe, from nothing
    python benchmarks/builds/build_times.py --locked           # the GPU's engine alone, with the kernels of its lock
    python benchmarks/builds/build_times.py --emulated  # the same engine at batch 1, built and verified without a GPU
    python benchmarks/builds/build_times.py --bundle           # what `bolt-build tune --export` takes, for batch 32

Clones this checkout's last commit into a temporary directory, with a virtual environment and a cache of its own, and
follows the README from there. Writes `results/build_times.json`, or one with the option's name behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build.scratch import scratch_folder

NULL_BUILDS = 10


@dataclass(frozen=True)
class Stranger:
    """A clone in a place of its own, and nothing of the machine's but its tools."""

    place: Path
    recipe: str
    extras: str = "host,verify"
    target: str | None = "host"
    options: tuple[str, ...] = ()
    verb: str = "build"

    @property
    def clone(self) -> Path:
        return self.place / "clone"

    @property
    def environment(self) -> dict[str, str]:
        # pip's downloads, bolt-build's results and what it learnt of tools are kept there: all start from nothing.
        own = {"XDG_CACHE_HOME": str(self.place / "cache"), "XDG_STATE_HOME": str(self.place / "state")}
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own

    @property
    def bolt_build(self) -> str:
        return str(self.place / "venv" / "bin" / "bolt-build")

    def build(self, *options: str) -> list[str]:
        """The command that builds the recipe."""
        only = ["--target", self.target] if self.target else []
        return [self.bolt_build, self.verb, self.recipe, *only, *self.options, *options]

    def run(self, argv: Sequence[str], where: Path | None = None) -> tuple[dict[str, float], str]:
        """Seconds of the wall and of the CPU (of the command and all that it started), and what it printed.

        Exits with the command's own words where it fails.
        """
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            argv, cwd=where or self.clone, env=self.environment, capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"wall_s": round(wall, 3), "cpu_s": round(cpu, 3)}, done.stdout


def first_build(stranger: Stranger) -> dict[str, Any]:
    """Clone, install and build: what the README's first command has to do."""
    steps: dict[str, Any] = {}
    python = str(stranger.place / "venv" / "bin" / "python")
    steps["clone"], _ = stranger.run(["git", "clone", "--quiet", str(ROOT), str(stranger.clone)], stranger.place)
    steps["venv"], _ = stranger.run([sys.executable, "-m", "venv", str(stranger.place / "venv")])
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f".[{stranger.extras}]"]
    steps["install"], _ = stranger.run(install)
    steps["build"], said = stranger.run(stranger.build())
    total = {name: round(sum(step[name] for step in steps.values()), 3) for name in ("wall_s", "cpu_s")}
    return {"total": total, "steps": steps, "tasks": [line for line in said.splitlines() if line.startswith("[")]}


def null_builds(stranger: Stranger) -> dict[str, Any]:
    """Builds with nothing to do."""
    stranger.run(stranger.build())
    walls = [stranger.run(stranger.build())[0]["wall_s"] for _ in range(NULL_BUILDS)]
    return {"median_wall_s": statistics.median(walls), "least_wall_s": min(walls), "most_wall_s": max(walls)}


def change(stranger: Stranger, edit: Callable[[str], str]) -> dict[str, Any]:
    """Edit the recipe: what `--dry-run` says of it, and what a build then does. The recipe is as before afterwards."""
    path = stranger.clone / stranger.recipe
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(edit(text), encoding="utf-8")
        dry, said = stranger.run(stranger.build("--dry-run"))
        built, told = stranger.run(stranger.build())
    finally:
        path.write_text(text, encoding="utf-8")
    return {
        "dry_run": dry, "build": built,
        "foreseen": [line for line in said.splitlines() if not line.startswith("planning")],
        "tasks": [line for line in told.splitlines() if line.startswith("[")],
    }  # fmt: skip


def bundle(stranger: Stranger, keep: Path | None) -> dict[str, Any]:
    """Clone, install, and pack every candidate of ResNet-50 at batch 32 for another machine; at `keep` it stays."""
    model = "model: {zoo: resnet50, batch: 32}\ntargets: {h200: {precision: fp16}}\ntuning: {lock: b32.lock}\n"
    stranger.run(["git", "clone", "--quiet", str(ROOT), str(stranger.clone)], stranger.place)
    recipe = stranger.clone / "b32.yaml"
    recipe.write_text(f"bolt: 1\n{model}", encoding="utf-8")
    stranger.run([sys.executable, "-m", "venv", str(stranger.place / "venv")])
    python = str(stranger.place / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f".[{stranger.extras}]"]
    stranger.run(install)
    packed = stranger.place / "bundle.tar"
    export, said = stranger.run(
        [stranger.bolt_build, "tune", recipe.name, "--export", str(packed), "--format", "json"]
    )  # fmt: skip
    result = json.loads(said.splitlines()[-1])
    kept = {key: result[key] for key in ("seconds", "compile", "statuses")}
    if keep is not None:
        shutil.copy2(packed, keep)
    return {"export": export, "bundle_bytes": packed.stat().st_size, "problems": len(result["problems"]), **kept}


CHANGES: dict[str, Callable[[str], str]] = {
    "comment": lambda text: f"# A comment.\n{text}",
    "verify.samples": lambda text: f"{text}verify: {{samples: 3}}\n",
    "policy.fusion.epilogue": lambda text: f"{text}policy: {{fusion: {{epilogue: false}}}}\n",
}


def measure(stranger: Stranger) -> dict[str, Any]:
    """Every figure; the whole takes some minutes."""
    figures: dict[str, Any] = {"first_build": first_build(stranger), "null_build": null_builds(stranger)}
    for name, edit in CHANGES.items():
        figures[f"change: {name}"] = change(stranger, edit)
        # Back to the recipe as it was, so that each change is measured from the same state.
        stranger.run(stranger.build())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all-targets", action="store_true", help="only the first build, of every target")
    parser.add_argument("--locked", action="store_true", help="only the first build of the H200's engine, locked")
    parser.add_argument("--emulated", action="store_true", help="only `bolt-build emulate` at batch 1")
    parser.add_argument("--bundle", action="store_true", help="only the export of candidates for an H200")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="with --bundle: where the bundle stays")
    parser.add_argument("--recipe", default="recipes/resnet50.yaml", help="within the clone")
    arguments = parser.parse_args()
    with scratch_folder() as place:
        if arguments.all_targets:
            everything = Stranger(place, arguments.recipe, "host,cuda,verify", None)
            figures: dict[str, Any] = {"first_build": first_build(everything)}
        elif arguments.locked:
            gpu = Stranger(place, arguments.recipe, "cuda,verify", "h200", ("--locked",))
            figures = {"first_build": first_build(gpu)}
        elif arguments.emulated:
            emulated = Stranger(place, arguments.recipe, "cuda,verify", "h200", ("--batch", "1"), "emulate")
            figures = {"first_build": first_build(emulated)}
        elif arguments.bundle:
            figures = bundle(Stranger(place, arguments.recipe, "cuda"), arguments.keep)
        else:
            figures = measure(Stranger(place, arguments.recipe))
    head = record.environment("bolt-build", "scons", "onnx", "onnxruntime", "numpy")
    load = {"load_average_at_end": [round(value, 2) for value in os.getloadavg()]}
    chosen = next((name for name in ("all_targets", "locked", "emulated", "bundle") if getattr(arguments, name)), "")
    record.write("_".join(filter(None, ("build_times", chosen))), head | load | figures)
    if arguments.bundle:
        print(f"bundle: {figures['export']['wall_s']:.1f} s, {figures['bundle_bytes'] / 1e6:.1f} MB")
        return
    total = figures["first_build"]["total"]
    print(f"fresh clone to verified engine: {total['wall_s']:.1f} s ({total['cpu_s']:.1f} CPU s)")
    for name, step in figures["first_build"]["steps"].items():
        print(f"  {name}: {step['wall_s']:.1f} s")
    if chosen:
        return
    print(f"nothing to do: {figures['null_build']['median_wall_s']:.2f} s (median of {NULL_BUILDS})")
    for name in CHANGES:
        found = figures[f"change: {name}"]
        print(f"{name} changed: {found['build']['wall_s']:.2f} s, {len(found['tasks'])} tasks")


if __name__ == "__main__":
    main()
