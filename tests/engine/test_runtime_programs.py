"""Engines in C programs: two of them, two contexts each, four threads, weights swapped without a rebuild."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from checked_memory import under_valgrind
from tiny_engine import build_engine, build_program, build_runner, tiny_constants, tiny_plan

from bolt_build import runtime
from bolt_build.emit.weights import write_weights
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.targets import HOST

PROGRAMS = Path(__file__).parents[1] / "data" / "runtime"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two engines, `left` and `right`, and two weights files of each."""
    directory = tmp_path_factory.mktemp("engines")
    for name, channels in (("left", 5), ("right", 700)):
        plan = tiny_plan(name, batches=(4,), channels=channels)
        build_engine(directory, plan, tiny_constants(channels))
        write_weights(directory / f"{name}.other", plan, tiny_constants(channels, scale=-0.5, shift=3.0))
    return directory


@pytest.fixture(scope="module")
def two_engines(engines: Path) -> list[str]:
    """Command line of the program over both engines."""
    program = engines / "two_engines"
    subprocess.run(
        ["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-I", runtime.include_dir(),
         PROGRAMS / "two_engines.c", "-o", program, "-lpthread", "-ldl"],
        check=True,
    )  # fmt: skip
    files = [f for name in ("left", "right") for f in (f"lib{name}.so", f"{name}.weights", f"{name}.other")]
    return [str(program), *(str(engines / file) for file in files)]


def test_two_engines_four_threads_and_swapped_weights(two_engines: list[str]) -> None:
    done = subprocess.run([*two_engines, "200"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_the_program_can_tell(two_engines: list[str]) -> None:
    program, library, weights, other, *right = two_engines
    same = subprocess.run([program, library, weights, weights, *right], capture_output=True, text=True, check=False)
    assert (same.returncode, same.stderr) == (1, "left: other weights give the same outputs\n")
    foreign = subprocess.run([program, library, right[1], other, *right], capture_output=True, text=True, check=False)
    assert foreign.returncode == 1
    assert foreign.stderr.startswith(f"{right[1]}: '{right[1]}' belongs to another engine: layout digest ")


def test_two_engines_under_valgrind(two_engines: list[str]) -> None:
    checked = under_valgrind([*two_engines, "2"], PROGRAMS / "valgrind.supp")
    if checked is None:
        pytest.skip("valgrind is not installed")
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


FORKED = """
import os, signal, sys
import numpy as np
from bolt_build.runtime.loader import Engine

def run():
    with Engine(sys.argv[1]).create(sys.argv[2], threads=2) as model, model.context(4) as context:
        (port,) = model.engine.inputs(4)
        context.run({port.name: np.zeros(port.shape, np.float32)})

run()
child = os.fork()
if not child:
    signal.alarm(60)
run()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_fork_runs_engines_on_several_threads_as_its_parent_did(engines: Path) -> None:
    """GNU's OpenMP would wait for threads that the child has not."""
    command = [sys.executable, "-c", FORKED, str(engines / "libright.so"), str(engines / "right.weights")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_headers_of_two_engines_in_one_strict_c_program(engines: Path) -> None:
    subprocess.run(
        ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", engines, PROGRAMS / "link_two.c",
         "-L", engines, "-lleft", "-lright", "-Wl,-rpath,$ORIGIN", "-o", engines / "link_two"],
        check=True,
    )  # fmt: skip
    said = subprocess.run([engines / "link_two"], capture_output=True, text=True, check=True).stdout
    assert said == "left 5\nright 700\n"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("shared_memory", id="shared memory is one copy for all plans"),
        pytest.param("counters", id="counters are a context's own"),
        pytest.param(
            "micro_batches", id="parts of a batch run through a micro-batched span, each in a slab of its own"
        ),
    ],
)
def test_a_program_over_the_runtime_finds_nothing_wrong(tmp_path: Path, name: str) -> None:
    program = build_program(PROGRAMS / f"{name}.cpp", tmp_path / name)
    empty = dataclasses.replace(tiny_plan(), weights=())
    write_weights(tmp_path / "w", empty, ())
    data = bytearray((tmp_path / "w").read_bytes())
    data[32:64] = bytes(32)
    data[12:16] = bytes(4)
    data[12:16] = zlib.crc32(data).to_bytes(4, "little")
    (tmp_path / "w").write_bytes(data)
    done = subprocess.run([program, tmp_path / "w"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n")


def _built_for(arch: str, directory: Path) -> Path:
    """The runner of an engine that says it was built for `arch` (its code is the test machine's)."""
    plan: EnginePlan = tiny_plan(batches=(1,))
    target = dataclasses.replace(HOST, arch=arch)
    return build_runner(build_engine(directory, plan, tiny_constants(), target=target), plan)


def test_a_cpu_without_the_instructions_is_refused(tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed: its CPU, which lacks AVX-512, stands for an old one")
    program = _built_for("x86-64-v4", tmp_path)
    done = subprocess.run([valgrind, "--quiet", program, "--bench"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        3, "", "tiny-run: this CPU lacks instructions of x86-64-v4, which this engine was built for\n",
    )  # fmt: skip


def test_an_arch_that_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    program = _built_for("pdp-11", tmp_path)
    done = subprocess.run([program, "--bench"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        3, "", "tiny-run: this engine was built for 'pdp-11', which is no kind of CPU that it can check for\n",
    )  # fmt: skip
