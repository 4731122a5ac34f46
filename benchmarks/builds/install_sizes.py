"""How large installations are: the README's, the slim ones of docs/dependencies.md, and the one with CUDA.

    python benchmarks/builds/install_sizes.py

Each goes into a fresh virtual environment; pip and setuptools are not counted. In each, `doctor` says whether engines
of the host and of an H200 can be built, and `plan` plans ResNet-18 for the host. Writes `results/install_sizes.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

PROJECT = ("--no-deps", str(ROOT))
SLIM = ("-r", str(ROOT / "slim.txt"))
INSTALLATIONS = {
    "host": ((f"{ROOT}[host,verify]",),),
    "slim, host": (SLIM, PROJECT),
    "slim, host and CUTLASS's headers": (SLIM, ("--no-deps", "nvidia-cutlass==4.2.0.0"), PROJECT),
    "host and CUDA": ((f"{ROOT}[host,verify,cuda]",),),
}
TARGETS = ("host", "h200")

_SIZES = """
import json
from importlib.metadata import distributions
sizes = {}
for each in distributions():
    if each.name not in ("pip", "setuptools"):
        files = (each.locate_file(file) for file in each.files or ())
        sizes[each.name] = sum(file.stat().st_size for file in files if file.is_file())
print(json.dumps(sizes))
"""


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = os.defpath  # whose compilers are the system's: no other environment's nvcc counts
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def missing(python: str, target: str) -> list[str]:
    """The tools of a target that `doctor` does not find."""
    done = ran(python, "-m", "bolt_build", "doctor", "--target", target, "--format", "json")
    return [tool["name"] for tool in json.loads(done.stdout)["tools"] if tool["path"] is None]


def installed(folder: Path, steps: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Bytes by package after these calls of pip, and what can be built then."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    for words in steps:
        done = ran(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
    sizes: dict[str, int] = json.loads(ran(python, "-c", _SIZES).stdout)
    planned = ran(python, "-m", "bolt_build", "plan", str(ROOT / "recipes" / "resnet18.yaml"), "--target", "host")
    return {
        "pip_install": [" ".join(words).replace(str(ROOT), ".") for words in steps],
        "bytes": sum(sizes.values()),
        "plans_host": planned.returncode == 0,
        "missing": {target: missing(python, target) for target in TARGETS},
        "packages": dict(sorted(sizes.items(), key=lambda each: -each[1])),
    }


def main() -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, steps) in enumerate(INSTALLATIONS.items()):
            found[name] = installed(Path(folder, str(number)), steps)
            print(f"{name}: {found[name]['bytes'] / 1e6:.0f} MB", flush=True)
        print(record.write("install_sizes", record.environment() | {"installations": found}))


if __name__ == "__main__":
    main()
