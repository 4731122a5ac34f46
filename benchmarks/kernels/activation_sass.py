"""Instructions that an activation of an fp16 output takes on sm_90a, and how many of them the unit of special functions
executes (16 a clock and multiprocessor, where others have 128).

    python benchmarks/kernels/activation_sass.py NVDISASM [--before COMMIT]

Kernels of eight outputs a thread, less one that copies; what rarely runs (slow paths) is counted too. `--before` counts
an older commit's as well. NVDISASM comes with the wheel nvidia-cuda-nvdisasm. Needs nvcc and no GPU.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from bolt_build import runtime
from bolt_build.toolchain import probe

INCLUDE = "bolt_build/families/portable/include"
FUNCTIONS = (
    "Relu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid", "Silu", "Tanh", "Gelu", "GeluTanh", "Erf", "Softplus", "Exp",
)  # fmt: skip
ARGUMENTS = {"Clip": "0.0f, 6.0f", "HardSigmoid": "0.2f, 0.5f"}
OUTPUTS = 8
SOURCE = """\
#include "bolt_portable/elementwise.h"
using namespace bolt::portable;
struct Copied {{ BOLT_HD float operator()(float x) const {{ return x; }} }};
template <typename F> __device__ void apply(const f16* a, f16* b, F f) {{
  float x[{outputs}];
  const int i = threadIdx.x * {outputs};
  load_lanes<{outputs}>(a + i, x);
#pragma unroll
  for (int k = 0; k < {outputs}; ++k) x[k] = f(x[k]);
  store_lanes<{outputs}>(b + i, x);
}}
"""


def counted(include: Path, nvdisasm: Path) -> dict[str, dict[str, float]]:
    """Instructions an output of each function, with the headers in `include`."""
    nvcc = probe(("nvcc",)).tool("nvcc").path
    kernels = [
        f'extern "C" __global__ void k_{name}(const f16* a, f16* b) '
        f"{{ apply(a, b, {name}{{{ARGUMENTS.get(name, '')}}}); }}\n"
        for name in ("Copied", *FUNCTIONS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "count.cu", Path(folder) / "count.cubin"
        source.write_text(SOURCE.format(outputs=OUTPUTS) + "".join(kernels))
        flags = ["-std=c++17", "-O3", "-arch=sm_90a", "-cubin", f"-I{include}", f"-I{runtime.include_dir()}"]
        subprocess.run([str(nvcc), *flags, str(source), "-o", str(cubin)], check=True)
        text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if begins := re.match(r"\s*\.text\.k_(\w+):", line):
            found[begins[1]] = []
        elif (one := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", line)) and one[1] != "NOP":
            list(found.values())[-1].append(one[1])
    least = len(found["Copied"])
    return {
        name: {
            "instructions": (len(found[name]) - least) / OUTPUTS,
            "special": sum(each.startswith("MUFU") for each in found[name]) / OUTPUTS,
        }
        for name in FUNCTIONS
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nvdisasm", type=Path)
    parser.add_argument("--before", metavar="COMMIT")
    arguments = parser.parse_args()
    result = {"now": counted(ROOT / INCLUDE, arguments.nvdisasm)}
    if arguments.before:
        packed = subprocess.run(
            ["git", "archive", arguments.before, INCLUDE], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(folder, filter="data")
            result["before"] = counted(Path(folder) / INCLUDE, arguments.nvdisasm)
    facts = record.environment("nvidia-cuda-nvcc")
    facts["command"] = facts["command"].replace(str(arguments.nvdisasm), "NVDISASM")
    record.write("activation_sass", facts | result)
    for name, now in result["now"].items():
        then = result.get("before", {}).get(name)
        print(f"{name:<12} {now['instructions']:5.1f} ({now['special']:.2f} special)", f"before {then}" if then else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
