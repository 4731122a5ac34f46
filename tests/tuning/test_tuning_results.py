"""Reading results.jsonl: all that the driver wrote, and nothing of a file that is damaged or of another kind."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.lockfile.fingerprint import Device
from bolt_build.tuning.exchange.engine_results import EngineRow, PlanRow, SwapRow, Unplayed
from bolt_build.tuning.exchange.results import (
    LARGEST_RESULTS,
    RESULTS_VERSION,
    WITHOUT_ENGINES,
    Results,
    Row,
    Unmeasured,
    read_results,
    results_text,
)
from bolt_build.tuning.records.engine_record import Gain
from bolt_build.tuning.records.kernel_record import Statistics, Status

H200 = Device("NVIDIA H200", 132, 150_000_000_000, 700, "570.86.15")
TIMES = Statistics(15.25, 15.0, 16.5, 0.004, 12, 64)
ROWS = (
    Row("p0", "c0", 0, Status.OK, "", TIMES, 0.125),
    Row("p0", "c1", 0, Status.CRASHED, "its process was ended by signal 11 (Segmentation fault)"),
    Row("p1", "c0", 0, Status.WRONG, "element 3 is nan, the reference has 1", None, 1e9),
)
RESULTS = Results(
    RESULTS_VERSION, "bundle", "h200", (H200,), ROWS, (Unmeasured("p1", "c1", "the budget was used up"),), True, 12.5
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(0, 1e12, allow_nan=False)
counts = st.integers(0, 1 << 40)
devices = st.builds(Device, words, counts, counts, counts, words)
statistics = st.builds(Statistics, numbers, numbers, numbers, numbers, counts, counts)
failures = st.sampled_from([status for status in Status if status is not Status.OK])


parts = st.floats(-1e6, 1)
pairs = st.integers(1, 100)
gains = st.builds(
    lambda of, count: Gain(*(sorted(of)[i] for i in (1, 0, 2)), count), st.tuples(parts, parts, parts), pairs
)
above = gains.filter(lambda gain: gain.low > 0)
kernels = st.dictionaries(words, words, max_size=3).map(lambda found: tuple(sorted(found.items())))


@st.composite
def swap_rows(draw: st.DrawFn, places: st.SearchStrategy[int]) -> SwapRow:
    names = draw(words), draw(words), draw(words), draw(places)
    if draw(st.booleans()):
        times = draw(statistics), draw(statistics), draw(gains)
        return SwapRow(*names, Status.OK, draw(words), *times, draw(st.booleans()))
    return SwapRow(*names, draw(failures), draw(words), None, None, None, kept=False)


@st.composite
def plan_rows(draw: st.DrawFn, places: st.SearchStrategy[int]) -> PlanRow:
    row = draw(swap_rows(places))
    return PlanRow(
        row.engine, row.problem, row.device, row.status, row.message, row.first, row.second, row.gain, row.kept
    )


@st.composite
def engine_rows(draw: st.DrawFn, places: st.SearchStrategy[int]) -> EngineRow:
    engine, base = draw(words), draw(kernels)
    plan = draw(st.just(engine) | words)
    what = engine, draw(counts), plan, draw(places)
    rest = draw(numbers), draw(counts), draw(counts), draw(st.booleans()), base
    if draw(st.booleans()):
        chosen = tuple((problem, draw(words)) for problem, _ in base)
        gain = draw(gains if (chosen, plan) == (base, engine) else above)
        return EngineRow(*what, Status.OK, draw(words), draw(statistics), draw(statistics), gain, *rest, chosen)
    what = engine, *what[1:2], engine, *what[3:]
    return EngineRow(*what, draw(failures), draw(words), None, None, None, *rest, base)


@st.composite
def measurements(draw: st.DrawFn) -> Results:
    found = tuple(draw(st.lists(devices, min_size=1, max_size=3)))
    places = st.integers(0, len(found) - 1)
    errors = st.none() | numbers
    right = st.builds(Row, words, words, places, st.just(Status.OK), words, statistics, errors)
    wrong = st.builds(Row, words, words, places, failures, words, st.none(), errors)
    rows = tuple(draw(st.lists(right | wrong, max_size=6)))
    left = tuple(draw(st.lists(st.builds(Unmeasured, words, words, words), max_size=3)))
    seconds = draw(st.none() | numbers)
    swaps = tuple(draw(st.lists(swap_rows(places), max_size=3)))
    engines = tuple(draw(st.lists(engine_rows(places), max_size=2)))
    plans = tuple(draw(st.lists(plan_rows(places), max_size=2)))
    unplayed = tuple(draw(st.lists(st.builds(Unplayed, words, counts, words), max_size=2)))
    return Results(
        RESULTS_VERSION, draw(words), draw(words), found, rows, left, seconds is not None, seconds, swaps, engines,
        unplayed, plans, draw(st.booleans()),
    )  # fmt: skip


@given(measurements())
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, results: Results) -> None:
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    path.write_text(results_text(results))
    assert read_results(path) == results


@given(st.integers(0, len(results_text(RESULTS).encode()) - 1))
def test_a_file_that_ends_anywhere_gives_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("results") / "results.jsonl"
    whole = results_text(RESULTS).encode()[:size]
    path.write_bytes(whole)
    lines = whole.count(b"\n")
    if lines == 0:
        with pytest.raises(BoltError) as raised:
            read_results(path)
        assert [d.code for d in raised.value.diagnostics] == ["results-unreadable"]
        return
    found = read_results(path)
    assert found.rows == ROWS[: min(lines - 1, len(ROWS))]
    assert not found.complete
    assert found.seconds is None


def complaints(path: Path, text: str) -> tuple[Diagnostic, ...]:
    path.write_text(text)
    with pytest.raises(BoltError) as raised:
        read_results(path)
    return raised.value.diagnostics


def changed(line: int, **values: object) -> str:
    """The results with other values in one line."""
    lines = [json.loads(text) for text in results_text(RESULTS).splitlines()]
    lines[line].update(values)
    return "".join(json.dumps(data) + "\n" for data in lines)


def test_the_device_of_a_row() -> None:
    other = dataclasses.replace(H200, name="NVIDIA H100")
    results = dataclasses.replace(RESULTS, devices=(H200, other))
    assert results.device(dataclasses.replace(ROWS[0], device=1)) == other


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert complaints(path, changed(0, version=3)) == (
        Diagnostic(
            "results-version",
            "the results have format version 3, this bolt-build reads version 2",
            Mark(str(path), 1, 1),
            hint="measure with a bundle of this bolt-build, or use the bolt-build that made theirs",
        ),
    )


def test_no_file(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    with pytest.raises(BoltError) as raised:
        read_results(path)
    assert raised.value.diagnostics == (
        Diagnostic(
            "results-unreadable",
            f"'{path}' holds no results of a measurement: No such file or directory",
            hint="give the results.jsonl that the bundle's run wrote",
        ),
    )


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("a tar archive", "give the results.jsonl that the bundle's run wrote"),
        ("an ONNX model", "give the results.jsonl that the bundle's run wrote"),
        ("a Git LFS pointer", "fetch the file that it stands for: git lfs pull"),
    ],
)
def test_a_file_of_another_kind_is_one_mistake(tmp_path: Path, kind: str, hint: str) -> None:
    """As the bundle itself, in place of what its run wrote."""
    path = tmp_path / "given"
    if kind == "a tar archive":
        (tmp_path / "README").write_text("one\ntwo\n")
        with tarfile.open(path, "w") as bundle:
            bundle.add(tmp_path / "README", "README")
    elif kind == "an ONNX model":
        path.write_bytes(b"\x08\x08\x12\x07pytorch\n\n\n")
    else:
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    message = f"'{path}' holds no results of a measurement: it is {kind}"
    with pytest.raises(BoltError) as raised:
        read_results(path)
    assert raised.value.diagnostics == (Diagnostic("results-unreadable", message, hint=hint),)


def test_what_is_no_file_or_too_large(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.jsonl", tmp_path / "large.jsonl"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(LARGEST_RESULTS + 1)
    said = []
    for path in (pipe, large):
        with pytest.raises(BoltError) as raised:
            read_results(path)
        said += [each.message for each in raised.value.diagnostics]
    assert said == [
        f"'{pipe}' holds no results of a measurement: a pipe, not a file",
        f"'{large}' holds no results of a measurement: larger than 64 MiB",
    ]


def test_an_empty_file(tmp_path: Path) -> None:
    (found,) = complaints(tmp_path / "results.jsonl", "")
    assert found.message == f"'{tmp_path}/results.jsonl' holds no results of a measurement: it is empty"


@pytest.mark.parametrize(
    ("line", "values", "message"),
    [
        (0, {"overlap": 1}, '"overlap" is neither true nor false'),
        (1, {"status": "fine"}, 'unknown status "fine"'),
        (1, {"kind": "row"}, 'unknown kind of line "row"'),
        (1, {"kind": "header"}, "the first line, and no other, is the header"),
        (1, {"device": 1}, "device 1 is not among the header's 1"),
        (1, {"device": True}, '"device" is missing or of another type'),
        (1, {"statistics": None}, "a candidate has statistics where, and only where, its status is ok"),
        (1, {"error": -1}, '"error" is no positive number'),
        (2, {"problem": 7}, '"problem" is missing or of another type'),
        (4, {"message": None}, '"message" is missing or of another type'),
        (1, {"error": 10**400}, '"error" is no positive number'),
        (1, {"problem": "\ud800"}, '"problem" is no text of Unicode'),
        (1, {"device": 10**400}, '"device" is larger than any count'),
        (1, {"message": "x" * (1 << 20)}, "the line has more than 1048576 characters"),
        (1, {"status": "x" * 1000}, f'unknown status "{"x" * 57}..."'),
        (5, {"measured": 4}, "lines are missing: 4 records and 1 unmeasured are stated, not 3 and 1"),
    ],
)
def test_a_damaged_line_is_shown(tmp_path: Path, line: int, values: dict[str, object], message: str) -> None:
    path = tmp_path / "results.jsonl"
    found = complaints(path, changed(line, **values))[0]
    assert (found.code, found.message) == ("results-damaged", message)
    assert found.mark is not None
    assert (found.mark.file, found.mark.line, found.mark.column) == (str(path), line + 1, 1)


def test_every_damaged_line_is_shown_at_once(tmp_path: Path) -> None:
    lines = results_text(RESULTS).splitlines()
    lines[1], lines[3] = lines[1][:40], "[1, 2]"
    del lines[5]
    found = complaints(tmp_path / "results.jsonl", "\n".join(lines) + "\n")
    assert [d.message for d in found] == ["the line is not JSON", "the line is no object of JSON"]


def test_numbers_that_are_none(tmp_path: Path) -> None:
    text = results_text(RESULTS).replace("15.25", "NaN")
    (found, *_) = complaints(tmp_path / "results.jsonl", text)
    assert found.message == "NaN is no number of JSON"


def test_nothing_follows_the_end(tmp_path: Path) -> None:
    text = results_text(RESULTS)
    (found,) = complaints(tmp_path / "results.jsonl", text + text.splitlines()[1] + "\n")
    assert found.message == "nothing follows the line that ends the results"


def test_results_that_know_nothing_of_engines_are_read(tmp_path: Path) -> None:
    """As bundles of before write them; what they cannot hold is damage."""
    older = dataclasses.replace(RESULTS, version=WITHOUT_ENGINES)
    text = results_text(older)
    assert "engines" not in text
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    assert read_results(path) == older
    line = json.dumps({"kind": "unplayed", "engine": "E", "batch": 1, "message": ""})
    found = complaints(path, text.replace('{"kind": "end"', line + '\n{"kind": "end"'))
    assert [each.message for each in found] == ['unknown kind of line "unplayed"']


GAIN = Gain(0.05, 0.04, 0.06, 12)
SWAP = SwapRow("E", "p0", "c1", 0, Status.OK, "", TIMES, TIMES, GAIN, kept=True)
ENGINE = EngineRow(
    "E", 32, "E", 0, Status.OK, "", TIMES, TIMES, GAIN, 0.003, 1, 0, True, (("p0", "c0"), ("p1", "c0")),
    (("p0", "c1"), ("p1", "c0")),
)  # fmt: skip
PLAYED = dataclasses.replace(RESULTS, swaps=(SWAP,), engines=(ENGINE,))


def damaged(kind: str, **changes: object) -> str:
    """The lines of PLAYED with some fields of the only line of a kind changed."""
    lines = [json.loads(line) for line in results_text(PLAYED).splitlines()]
    return "".join(json.dumps(line | changes if line["kind"] == kind else line) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (damaged("swap", gain=2.0), '"gain" is no part of a time'),
        (damaged("swap", low=0.055), '"gain" does not lie between "low" and "high"'),
        (damaged("swap", kept=1), '"kept" is missing or of another type'),
        (damaged("swap", first=None), "a comparison has times where, and only where, its status is ok"),
        (damaged("swap", status="crashed", first=None, second=None), "a swap that failed cannot have been kept"),
        (damaged("swap", device=1), "device 1 is not among the header's 1"),
        (damaged("swap", status="fine"), 'unknown status "fine"'),
        (damaged("engine", chosen={"p0": "c1"}), '"base" and "chosen" are not of the same problems'),
        (damaged("engine", low=-0.01), "another engine was chosen without a gain"),
        (
            damaged("engine", status="crashed", first=None, second=None),
            "another engine was chosen without a gain",
        ),
        (damaged("engine", plan="F", chosen=dict(ENGINE.base), low=0.0), "another engine was chosen without a gain"),
        (damaged("end", plans=1), "lines are missing: 1 plans are stated, not 0"),
        (damaged("engine", base={"p0": 3}), '"p0" is missing or of another type'),
        (damaged("engine", batch=-1), '"batch" is negative'),
        (damaged("end", swaps=2), "lines are missing: 2 swaps are stated, not 1"),
        (damaged("end", engines=0), "lines are missing: 0 engines are stated, not 1"),
        (damaged("end", unplayed=None), '"unplayed" is missing or of another type'),
    ],
)  # fmt: skip
def test_a_line_about_an_engine_that_cannot_be_is_damage(tmp_path: Path, text: str, why: str) -> None:
    assert complaints(tmp_path / "results.jsonl", text)[0].message == why
