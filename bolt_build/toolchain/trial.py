"""Whether a C++ compiler does what engines need: C++17 with OpenMP, compiled and linked. Takes about a second, so that
only `doctor` asks."""

from __future__ import annotations

import os
import subprocess

from bolt_build.scratch import scratch_folder
from bolt_build.toolchain.tool import Tool

_PROGRAM = """\
#include <omp.h>
#include <optional>
#if __cplusplus < 201703L
#error C++17 is needed
#endif
int main() {
    std::optional<int> threads;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
    }
    return *threads > 0 ? 0 : 1;
}
"""


def try_cxx(tool: Tool) -> str | None:
    """What keeps the compiler from making a C++17 program with OpenMP; None where it makes one."""
    if tool.path is None:
        return tool.problem
    with scratch_folder() as folder:
        source = folder / "trial.cpp"
        source.write_text(_PROGRAM, encoding="utf-8")
        argv = [tool.path, "-std=c++17", "-fopenmp", str(source), "-o", str(folder / "trial")]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, errors="replace", timeout=120, check=False,
                env={"PATH": os.defpath} | os.environ | {"TMPDIR": str(folder)},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{tool.path} cannot be run: {error}"
    if done.returncode == 0:
        return None
    lines = done.stderr.replace(f"{folder}/", "").splitlines()
    said = next((line for line in lines if "error" in line), lines[0] if lines else "")
    return f"{tool.path} does not compile C++17 with OpenMP" + (f": {said.strip()}" if said else "")
