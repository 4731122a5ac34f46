"""The plan of an engine with two products in one kernel, and the unit of that kernel, compile and fit together."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cuda_engine import for_symbols, nvcc
from pair_fakes import CHAIN_ON_H200, with_policy
from planner_checks import graph

from bolt_build import runtime
from bolt_build.emit.engine import SourceFile, emit
from bolt_build.families import load
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.selection import Selection, Winner
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named
from bolt_build.toolchain import probe

H200 = target_named("h200")
FAMILIES = load(H200)


def planned(way: str) -> PlannedEngine:
    """The engine of one pair, with its first kernel that has the parameter `way`."""
    made = (graph(CHAIN_ON_H200),), with_policy("always"), TargetSpec("h200", "fp16"), H200, FAMILIES
    (outcome,) = plan_engine(*made).chains
    (cutlass,) = [family for family in FAMILIES if family.name == "cutlass"]
    candidates, _ = cutlass.candidates(outcome.chain.problem, H200)
    chosen = next(each for each in candidates if way in dict(each.parameters))
    return plan_engine(*made, Selection("a test", (Winner(outcome.chain.problem.digest, chosen, 2e-5),)))


def sources(way: str) -> dict[str, SourceFile]:
    return {file.path: file for file in emit(planned(way).plan, H200, FAMILIES)}


@pytest.mark.parametrize(("way", "header"), [("warpgroups", "_warpgroup"), ("through", "")])
def test_a_plan_holds_the_pair_and_its_unit_is_beside_it(way: str, header: str) -> None:
    files = sources(way)
    plan = files["plan_b32.cu"].text
    assert '#include "bolt_cutlass/pair.h"' in plan
    assert "bolt::cutlass_kernels::PairConv<" in plan
    assert "// op      conv strides=(1, 1) pads_begin=(1, 1)" in plan
    assert "//         then conv strides=(1, 1) pads_begin=(0, 0)" in plan
    (unit,) = [file.text for path, file in files.items() if path.startswith("k_")]
    assert unit.startswith(f'#include "bolt_cutlass/conv_pair{header}_kernel.h"\n')


def test_the_plan_asks_for_what_the_unit_defines(tmp_path: Path) -> None:
    """Of warps' instructions, whose kernels compile in seconds."""
    nvcc()
    files = sources("through")
    paths = [tmp_path / name for name in files if name == "plan_b32.cu" or name.startswith("k_")]
    for name, file in files.items():
        (tmp_path / name).write_text(file.text)
    with ThreadPoolExecutor(2) as pool:
        plan, unit = sorted(pool.map(_compiled, paths), key=lambda path: not path.name.startswith("plan"))
    wanted, defined = _symbols(plan, "--undefined-only"), _symbols(unit, "--defined-only")
    assert len(wanted) == 1
    assert wanted <= defined


def _compiled(source: Path) -> Path:
    tools = probe(H200.tools)
    headers = [path for name in ("nvcc", "cutlass") for path in tools.tool(name).include_dirs]
    includes = [runtime.include_dir(), *(family.include_dir for family in FAMILIES), *headers]
    flags = ["-std=c++17", *for_symbols(H200), "-Xcompiler", "-fPIC", *(f"-I{path}" for path in includes)]
    made = source.with_suffix(".o")
    _run([tools.tool("nvcc").path, *flags, "-c", source, "-o", made])
    return made


def _symbols(made: Path, which: str) -> set[str]:
    """Mangled names of the launches."""
    lines = _run(["nm", which, made]).splitlines()
    return {line.split()[-1] for line in lines if "launch_conv" in line and "SecondArguments" in line}


def _run(argv: list[object]) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return done.stdout
