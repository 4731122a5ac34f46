"""Headers of CUDA kernels that steps include beside their host's stand alone: sorted, they come first."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import bolt_build.families.portable
from bolt_build import runtime
from bolt_build.families import load
from bolt_build.targets import target_named
from bolt_build.toolchain import probe

KERNELS = Path(bolt_build.families.portable.__file__).parent / "kernels"
NAMED = sorted(
    {name for path in KERNELS.rglob("*.py") for name in re.findall(r"bolt_portable/cuda/[\w/]+\.h", path.read_text())}
)
H200 = target_named("h200")


@pytest.mark.large
@pytest.mark.parametrize("header", NAMED)
def test_a_step_may_include_it_first(header: str, tmp_path: Path) -> None:
    source = tmp_path / "first.cu"
    source.write_text(f'#include "{header}"\n')
    folders = (runtime.include_dir(), *(family.include_dir for family in load(H200)))
    command = [
        str(probe(("nvcc",)).tool("nvcc").path),
        "-std=c++17",
        *H200.compile_flags,
        "-c",
        "-o",
        str(tmp_path / "first.o"),
    ]
    done = subprocess.run(
        [*command, *(f"-I{each}" for each in folders), str(source)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
