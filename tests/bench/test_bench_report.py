"""A comparison as people read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rich.cells import cell_len

from bolt_build.bench.comparison import Agreement, Comparison, Failed, Measured, worst_exit_code
from bolt_build.bench.device import DeviceState
from bolt_build.errors import ExitCode
from bolt_build.report.bench import missing_packages, render

SAME = Agreement("logits", 0.99999871, 0.00312, 0.0016, 0)
ENGINE = Measured(
    name="engine", batch=32, library="bolt-build 0.1", precision="fp16", form="f16 channels_last", runs=150,
    median_ms=0.85, p99_ms=0.875, min_ms=0.84, round_medians_ms=(0.85, 0.85, 0.86), states=(DeviceState(1980, 45),) * 3,
    images_per_second=37647.06, sustained_images_per_second=38100.5, joules_per_image=0.0123, memory_bytes=123_000_000,
    setup_seconds=1.5, compile_seconds=None, engine_speedup=1.0, agreement=(replace(SAME, cosine=1.0, max_abs=0.0),),
    wrong=None,
)  # fmt: skip
COMPILED = replace(
    ENGINE, name="torch-compile", library="torch 2.11.0", median_ms=1.47, p99_ms=1.5, images_per_second=21768.7,
    sustained_images_per_second=21900.0, joules_per_image=0.0201, memory_bytes=1_230_000_000, compile_seconds=185.2,
    engine_speedup=1.729, agreement=(SAME,),
)  # fmt: skip
LIAR = replace(
    COMPILED, name="liar", engine_speedup=0.5, compile_seconds=None, agreement=(Agreement("logits", 0.31, 4.2, 1.1, 0),)
)
OTHER = replace(LIAR, name="other", agreement=(), wrong="it has no output 'logits'")
MISSING = Failed("onnxruntime", 32, "onnxruntime cannot be imported (gone)", True, "pip install onnxruntime", ())
BROKEN = Failed("torch-graph", 32, "RuntimeError: no graph", False, "", ("Traceback", "RuntimeError: no graph"))


def comparison(*results: Measured | Failed, no_energy: str | None = None) -> Comparison:
    return Comparison(1, "resnet50", "h200", "fp16", "NVIDIA H200", None, 3, no_energy, results)


def test_the_whole_table(golden: Callable[[str, str], None]) -> None:
    first = comparison(ENGINE, COMPILED, LIAR, OTHER, BROKEN, MISSING, replace(ENGINE, batch=1))
    golden("bench/table.txt", render(first, color=False))


def test_columns_without_a_figure_are_left_out(golden: Callable[[str, str], None]) -> None:
    plain = {"joules_per_image": None, "sustained_images_per_second": None}
    rows = (replace(ENGINE, **plain), replace(LIAR, **plain))
    on_cpu = replace(comparison(*rows, no_energy="energy is only told of GPUs"), threads=1, device="a CPU")
    golden("bench/cpu.txt", render(on_cpu, color=False))


def test_a_narrow_terminal_keeps_what_matters() -> None:
    lines = render(comparison(ENGINE, COMPILED), color=False, width=80).splitlines()
    table = lines[3:6]
    assert all(cell_len(line) <= 80 for line in table)
    assert table[0].split()[:5] == ["contestant", "median", "ms", "p99", "ms"]
    assert "1.73x as fast" in table[2]
    assert table[2].endswith("agree")


def test_a_package_is_asked_for_once_however_many_batches() -> None:
    found = missing_packages([comparison(ENGINE, MISSING, replace(MISSING, batch=1)), comparison(ENGINE, MISSING)])
    assert [(d.code, d.message, d.hint) for d in found] == [
        ("missing-tool", "onnxruntime: onnxruntime cannot be imported (gone)", "pip install onnxruntime")
    ]


def test_the_exit_code_is_that_of_the_worst() -> None:
    well, departs = comparison(ENGINE, COMPILED), comparison(ENGINE, LIAR)
    failed, missing = comparison(ENGINE, LIAR, BROKEN), comparison(ENGINE, BROKEN, MISSING)
    assert worst_exit_code([]) is ExitCode.OK
    assert worst_exit_code([well]) is ExitCode.OK
    assert worst_exit_code([departs, well]) is ExitCode.VERIFY_FAILED
    assert worst_exit_code([departs, failed]) is ExitCode.TASK_FAILED
    assert worst_exit_code([failed, missing, well]) is ExitCode.TOOL_MISSING


def test_what_is_not_finite_never_agrees() -> None:
    assert not replace(SAME, not_finite=1).ok
    assert not replace(SAME, cosine=0.98).ok
    assert not replace(SAME, rms=0.2).ok
    assert SAME.ok
