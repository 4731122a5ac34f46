"""A target that brings its own compiler: what a backend for AMD's GPUs would bring, with hipcc for toycc.

The row says what is compiled by what; the tool says where the compiler is, and changes its digest when that changes.
Engines of `toy` live in the CPU's memory, so that they can be run and verified anywhere.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bolt_build.digest import digest, digest_file
from bolt_build.targets import HOST, Compiler
from bolt_build.toolchain.memory import Memory
from bolt_build.toolchain.surroundings import Surroundings, line_with
from bolt_build.toolchain.tool import Tool, missing

TOYCC = Path(__file__).parent / "bin" / "toycc"
"""It comes with this package; hipcc would be looked for with `around.program(("hipcc",))`."""


def look_for_toycc(around: Surroundings, memory: Memory) -> Tool:
    """What it says changes with the compiler that it drives, so it is asked each time instead of remembered."""
    says = line_with("toycc", [str(TOYCC), "--version"])
    if says is None:
        mend = "python -m pip install --force-reinstall bolt-build-example"
        return missing("toycc", f"{TOYCC} does not answer --version", mend)
    return Tool("toycc", str(TOYCC), says.split()[1], digest(["toycc", says, digest_file(TOYCC)]))


TOY = replace(
    HOST,
    name="toy",
    description="this CPU, with kernels compiled by toycc",
    precisions=("fp32",),
    families=("portable",),
    tools=("cxx", "toycc"),
    compile_flags=("-O2", *HOST.compile_flags),
    link_flags=("-fopenmp",),
    compiler=Compiler("toycc", "toy"),
)
