"""Tasks of a CUDA target: which compiler a file gets, and that kernel units belong to no engine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_engine import nvcc
from cuda_tasks import UNIT, graph, named

from bolt_build.build import compile_cuda
from bolt_build.build.staleness.receipt import task_key


def test_cuda_sources_go_to_nvcc_for_the_target_and_others_to_the_cxx_compiler() -> None:
    tasks = graph(units=(UNIT,))
    plan, engine = named(tasks, "compile-plan_b1"), named(tasks, "compile-engine")
    assert plan.argv[:4] == ("${python}", "${package}/build/compile_cuda.py", "${nvcc}", "src/plan_b1.cu")
    assert {"arch=compute_90a,code=sm_90a", "-ccbin"} <= set(plan.argv)
    assert engine.argv[0] == "${cxx}"
    assert "arch=compute_90a,code=sm_90a" not in engine.argv


def test_what_has_no_loops_over_elements_is_compiled_alike_for_all_targets() -> None:
    """And so that a program runs on any CPU, up to where its engine refuses it."""
    on_gpu, on_host = graph(), graph(target="host")
    for name in ("compile-runtime_core", "compile-runtime_arrays", "compile-runtime_commands"):
        assert named(on_gpu, name) == named(on_host, name)
        assert "-march=x86-64-v3" not in named(on_host, name).argv
    assert "-march=x86-64-v3" in named(on_host, "compile-runtime_device_cpu").argv


def test_the_library_has_the_plan_the_units_and_the_layer_of_its_device() -> None:
    inputs = named(graph(units=(UNIT,)), "link-library").inputs
    for unit in ("plan_b1", "engine", "k_0123", "runtime_device_cuda"):
        assert f"build/objects/{unit}.o" in inputs
    assert "build/objects/runtime_device_cpu.o" not in inputs
    assert "-lcudart_static" in named(graph(), "link-library").argv


def test_a_unit_is_compiled_once_for_all_recipes_and_targets_of_an_architecture() -> None:
    inputs = {"src/k_0123.cu": "2" * 64}
    keys = {
        task_key(named(graph(name, target, (UNIT,)), "compile-k_0123"), inputs)
        for name in ("net", "other")
        for target in ("h200", "h100")
    }
    assert len(keys) == 1
    assert task_key(named(graph("net", "a100", (UNIT,)), "compile-k_0123"), inputs) not in keys


def test_a_unit_is_called_by_what_it_computes_and_keyed_without_that() -> None:
    called = named(graph(units=(replace(UNIT, label="conv tile 128x64x32 in 4 stages | relu"),)), "compile-k_0123")
    nameless = named(graph(units=(UNIT,)), "compile-k_0123")
    assert (called.label, nameless.label) == ("compile conv tile 128x64x32 in 4 stages | relu", "compile k_0123.cu")
    inputs = {"src/k_0123.cu": "2" * 64}
    assert task_key(called, inputs) == task_key(nameless, inputs)


def test_a_unit_is_admitted_by_the_memory_that_it_states() -> None:
    assert named(graph(units=(UNIT,)), "compile-k_0123").memory_mb == 3700


def test_nothing_is_shipped_beside_a_cuda_engine_but_its_own_files() -> None:
    assert graph().artifacts == ("net.weights", "net.h", "libnet.so", "net-run", "manifest.json")


def test_an_engine_that_runs_elsewhere_is_not_verified() -> None:
    assert all(task.rule != "verify" for task in graph().tasks)


def test_equal_sources_give_equal_objects_wherever_they_lie(tmp_path: Path) -> None:
    tool = nvcc()
    text = "namespace { __global__ void kernel(int* x) { *x = 1; } }\nvoid launch(int* x) { kernel<<<1, 1>>>(x); }\n"
    made = []
    for place in ("one", "another/place"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "unit.cu").write_text(text)
        script = [sys.executable, compile_cuda.__file__, str(tool.path), "unit.cu", "unit.o", "-arch=sm_90"]
        subprocess.run(script, cwd=folder, check=True)
        made.append((folder / "unit.o").read_bytes())
    assert made[0] == made[1]


def run_script(folder: Path, nvcc_path: Path | str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "unit.cu").write_text("int x;\n")
    script = [sys.executable, compile_cuda.__file__, str(nvcc_path), "unit.cu", "unit.o"]
    return subprocess.run(
        script, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | variables
    )  # fmt: skip


def test_the_compiler_sees_the_same_path_whoever_compiles_and_leaves_nothing(tmp_path: Path) -> None:
    """Whatever others have put into the folder for temporary files: each compile has one of its own."""
    fake = tmp_path / "nvcc"
    fake.write_text('#!/bin/sh\necho "$2 $(cat "$2") $(ls -ld "$(dirname "$2")/" | cut -c1-10)"; echo made > "$4"\n')
    fake.chmod(0o755)
    said = []
    for user in ("one", "two"):
        temporary = tmp_path / user
        temporary.mkdir()
        (temporary / "bolt-build").write_text("another user's")
        done = run_script(temporary, fake, TMPDIR=str(temporary))
        assert (done.returncode, (temporary / "unit.o").read_text()) == (0, "made\n"), done.stdout
        assert sorted(path.name for path in temporary.iterdir()) == ["bolt-build", "unit.cu", "unit.o"]
        said.append(done.stdout)
    assert said == ["unit.cu int x; drwx------\n"] * 2


def test_a_compiler_that_cannot_be_run_has_said_nothing_of_the_source(tmp_path: Path) -> None:
    done = run_script(tmp_path, tmp_path / "gone")
    assert done.returncode == compile_cuda.MACHINE_FAILED
    assert done.stderr == (
        f"the compiler could not be run on unit.cu: [Errno 2] No such file or directory: '{tmp_path}/gone'\n"
    )


def test_without_a_folder_for_temporary_files_nothing_is_said_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/tmp/bolt-build-x")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    (tmp_path / "unit.cu").write_text("int x;\n")
    status = compile_cuda.main(["nvcc", str(tmp_path / "unit.cu"), str(tmp_path / "unit.o")])
    assert status == compile_cuda.MACHINE_FAILED
    assert capsys.readouterr().err == (
        f"the compiler could not be run on {tmp_path}/unit.cu: [Errno 13] Permission denied: '/tmp/bolt-build-x'\n"
    )


def test_what_the_compiler_says_names_the_source_as_it_was_given(tmp_path: Path) -> None:
    tool = nvcc()
    (tmp_path / "wrong.cu").write_text("int x = y;\n")
    script = [sys.executable, compile_cuda.__file__, str(tool.path), "wrong.cu", "wrong.o"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout.startswith('wrong.cu(1): error: identifier "y" is undefined')
    assert not (tmp_path / "wrong.o").exists()
