"""Generated C++: golden text, determinism, and names that no compiler would like."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_engine import FACTS, FAMILIES, build_engine, operand, ports_plan, tiny_plan

from bolt_build.emit.engine import emit, emit_runner, source_names
from bolt_build.emit.text import c_string, comment, raw_string, wrapped
from bolt_build.planner.engine_plan import EnginePlan, Location
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine
from bolt_build.targets import HOST

ABI = Path(__file__).parents[2] / "bolt_build/runtime/include/bolt_engine.h"


def _files(plan: EnginePlan) -> dict[str, str]:
    return {file.path: file.text for file in emit(plan, HOST, FAMILIES, FACTS)}


def test_source_is_the_golden_text(golden: Callable[[str, str], None]) -> None:
    files = _files(tiny_plan())
    assert tuple(files) == source_names(tiny_plan(), HOST)
    for name in ("engine.cpp", "plan_b4.cpp", "exports.map"):
        golden(f"emit/golden/{name}", files[name])
    golden("emit/golden/runner.cpp", emit_runner(tiny_plan()).text)


def test_header_is_the_abi_and_one_function() -> None:
    text = _files(tiny_plan())["tiny.h"]
    abi = ABI.read_text()
    assert text.startswith(abi)
    assert "const bolt_engine_v1* tiny_bolt_v1(void);" in text.removeprefix(abi)


def test_text_names_no_directory() -> None:
    home = str(Path(__file__).parents[2])
    assert not any(home in text for text in _files(tiny_plan()).values())


def test_a_family_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"^step 0 'Mul_0' needs family 'plain', which is none of: $"):
        emit(tiny_plan(), HOST, ())


def test_a_view_that_would_have_to_move_bytes_is_refused() -> None:
    plan = tiny_plan(batches=(1,))
    (batch,) = plan.plans
    view = batch.steps[2]
    moved = dataclasses.replace(view, outputs=(dataclasses.replace(view.outputs[0], location=Location("arena", 0)),))
    steps = (*batch.steps[:2], moved, *batch.steps[3:])
    broken = dataclasses.replace(plan, plans=(dataclasses.replace(batch, steps=steps),))
    with pytest.raises(ValueError, match=r"^step 2 'Reshape_2' is a view, but its output is not where its input is$"):
        emit(broken, HOST, FAMILIES)


ODD_NAMES = ("back\\slash\\", 'quo"te', "line\nbreak", "*/ what??/", "%s%n", 'R"text(', ')text"', "日本 é", "\x01\x7f")


def test_odd_names_survive_the_compiler(tmp_path: Path) -> None:
    plan = ports_plan([(name, operand((1, 2))) for name in ODD_NAMES])
    with Engine(build_engine(tmp_path, plan, ())) as engine:
        assert tuple(port.name for port in engine.inputs(1)) == ODD_NAMES
        assert tuple(port.name for port in engine.outputs(1)) == tuple(f"{name}_out" for name in ODD_NAMES)


@given(st.text())
def test_comments_are_one_printable_line_without_escapes(text: str) -> None:
    line = comment(text)
    assert line.isprintable()
    assert not line.endswith("\\")


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=20, max_size=20))
@settings(max_examples=3, deadline=None)
def test_literals_mean_their_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    directory = tmp_path_factory.mktemp("literals")
    pairs = ",\n".join(f"{c_string(text)}, {raw_string(text.replace(chr(13), ''))}" for text in texts)
    source = (
        "#include <cstdio>\n#include <initializer_list>\nint main() { for (const char* s : {"
        + pairs
        + "}) std::fwrite(s, 1, __builtin_strlen(s) + 1, stdout); }"
    )
    (directory / "a.cpp").write_text(source, encoding="utf-8", newline="")
    subprocess.run(["g++", "-std=c++17", "-w", "a.cpp", "-o", "a"], cwd=directory, check=True)
    said = subprocess.run([directory / "a"], capture_output=True, check=True).stdout.split(b"\0")[:-1]
    assert [text.decode() for text in said] == [form for text in texts for form in (text, text.replace(chr(13), ""))]


def test_names_of_files_and_symbol() -> None:
    assert names.symbol("resnet50") == "resnet50_bolt_v1"
    assert names.symbol("2x-net") == "engine_2x_net_bolt_v1"
    assert (names.library("a"), names.header("a"), names.weights("a"), names.runner("a")) == (
        "liba.so", "a.h", "a.weights", "a-run",
    )  # fmt: skip


def test_long_arguments_stand_on_lines_of_their_own() -> None:
    members = ", ".join(f".member_{i} = {{{i}, {i}}}" for i in range(8))
    code = f'p.step(1), Shape{{{members}}}, Constant{{p.weight(0), "a, b"}}, Epilogue().add(1, 2)'
    assert wrapped(code, 15).replace(" " * 15, "").splitlines() == [
        "p.step(1),",
        "Shape{.member_0 = {0, 0}, .member_1 = {1, 1}, .member_2 = {2, 2}, .member_3 = {3, 3},",
        "    .member_4 = {4, 4}, .member_5 = {5, 5}, .member_6 = {6, 6}, .member_7 = {7, 7}},",
        'Constant{p.weight(0), "a, b"},',
        "Epilogue().add(1, 2)",
    ]
    assert wrapped("f(a, b);", 8) == "f(a, b);"
    assert wrapped(f"f<int, int>({'a' * 60}, {'b' * 60});", 2) == f"f<int, int>({'a' * 60},\n  {'b' * 60});"


@given(
    st.lists(st.sampled_from(["f(", ")", "{", "}", ", ", '", "', "aaaaaaaaaaaaaaaa", ";"]), max_size=40).map("".join)
)
def test_wrapping_changes_blanks_alone(code: str) -> None:
    assert "".join(wrapped(code, 4).split()) == "".join(code.split())
