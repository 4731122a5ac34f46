"""From `pip install` to a verified engine of one's own ONNX file: three commands in an empty directory, each timed.

    python benchmarks/builds/first_engine.py             # of ResNet-18 as an ONNX file that somebody else wrote
    python benchmarks/builds/first_engine.py NET.onnx

The checkout's last commit is installed into a virtual environment of its own, with empty caches. Writes
`results/first_engine.json`: seconds of the wall and of the CPU, and the load of the machine before and after.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.builds.build_times import Stranger
from bolt_build.graph import zoo
from bolt_build.scratch import scratch_folder

NAME = "net"
"""What the file is called, so that the commands are."""


def measure(place: Path, model: Path | None) -> dict[str, Any]:
    """Runs the commands one after the other. Exits with the words of the one that fails."""
    stranger = Stranger(place, f"{NAME}.yaml")
    stranger.run(["git", "clone", "--quiet", str(ROOT), str(stranger.clone)], place)
    here = place / "empty"
    here.mkdir()
    if model is None:
        zoo.write("resnet18", here / f"{NAME}.onnx")
    else:
        shutil.copy(model, here / f"{NAME}.onnx")
    install = f"{shlex.quote(sys.executable)} -m venv .venv && .venv/bin/pip install -q '{stranger.clone}[host,verify]'"
    commands = {
        "install": (install, "python3 -m venv .venv && .venv/bin/pip install 'CHECKOUT[host,verify]'"),
        "init": (f".venv/bin/bolt-build init {NAME}.onnx",) * 2,
        "build": (f".venv/bin/bolt-build {NAME}.yaml",) * 2,
    }
    found: dict[str, Any] = {"model": "resnet18" if model is None else model.name, "commands": {}}
    for name, (command, shown) in commands.items():
        seconds, said = stranger.run(["bash", "-c", command], here)
        found["commands"][name] = {"command": shown, **seconds}
    agrees = [line for line in said.splitlines() if " agrees with onnxruntime" in line]
    if not agrees:
        sys.exit(f"the engine was not verified:\n{said}")
    found["verified"] = agrees[0]
    times = found["commands"].values()
    found["total"] = {key: round(sum(each[key] for each in times), 3) for key in ("wall_s", "cpu_s")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", metavar="NET.onnx")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write it there instead")
    arguments = parser.parse_args()
    load = [round(value, 2) for value in os.getloadavg()]
    with scratch_folder() as place:
        found = measure(place, arguments.model)
    after = [round(value, 2) for value in os.getloadavg()]
    head = record.environment("onnx", "onnxruntime", "numpy", "scons")
    path = record.write(
        "first_engine", head | {"load_average_before": load, "load_average_at_end": after} | found, arguments.out
    )
    print(f"{path}: {found['total']['wall_s']:.1f} s, {found['total']['cpu_s']:.1f} CPU s")
    for name, each in found["commands"].items():
        print(f"  {name}: {each['wall_s']:.1f} s")


if __name__ == "__main__":
    main()
