"""The file of records: what is kept, by whom at once, and what is said of a file that is none."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from engine_evidence import TABLE, played, swapped
from hypothesis import given, settings
from hypothesis import strategies as st
from tune_sets import LARGE, SMALL, SPLIT
from tuning_evidence import ON_A100, ON_H200, failed, ok

from bolt_build.errors import BoltError, ExitCode
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.report.diagnostics import render
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.kernel_record import RECORD_VERSION, Record, Status

ROOT = Path(__file__).parents[2]
ONE, TWO = "1" * 64, "2" * 64


def complaint(path: Path) -> tuple[str, ExitCode]:
    """What opening the file at `path` is answered with."""
    with pytest.raises(BoltError) as raised, Records(path):
        pass
    return render(raised.value.diagnostics, color=False), raised.value.exit_code


def everything(path: Path) -> tuple[tuple[Fingerprint, Record], ...]:
    with Records(path) as records:
        return records.all(records.problems())


def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "tuning" / "records.sqlite"
    lost = failed(ONE, LARGE, Status.NOT_COMPILED, "error: no such tile")
    with Records(path) as records:
        assert records.merge(ON_H200, [ok(ONE, SMALL, 3.5), lost]) == 2
    assert everything(path) == ((ON_H200, lost), (ON_H200, ok(ONE, SMALL, 3.5)))
    assert [file.name for file in path.parent.iterdir()] == ["records.sqlite"]


def test_only_the_problems_that_are_asked_for_in_the_order_of_their_digests(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.merge(ON_H200, [ok(TWO, SMALL, 2.0), ok(ONE, SMALL, 1.0), ok("3" * 64, SMALL, 3.0)])
        assert [record.problem for _, record in records.all([TWO, ONE, ONE, "4" * 64])] == [ONE, TWO]
        assert records.problems() == (ONE, TWO, "3" * 64)


def test_a_newer_record_replaces_the_older_of_the_same_problem_candidate_and_fingerprint(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.merge(ON_H200, [ok(ONE, SMALL, 3.5), ok(ONE, LARGE, 4.0)])
        assert records.merge(ON_H200, [ok(ONE, SMALL, 3.0), ok(ONE, LARGE, 4.0)]) == 1
        assert records.merge(ON_A100, [ok(ONE, SMALL, 9.0)]) == 1
        found = {(f.device.name, r.candidate): r.statistics.median for f, r in records.all([ONE]) if r.statistics}
    assert found == {("NVIDIA H200", SMALL): 3.0, ("NVIDIA H200", LARGE): 4.0, (ON_A100.device.name, SMALL): 9.0}


def test_settings_are_candidates_of_their_own(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.merge(ON_H200, [ok(ONE, SMALL, 3.5), ok(ONE, SPLIT, 3.0)])
        assert len(records.all([ONE])) == 2


def test_what_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite") as records:

        def broken() -> object:
            yield ok(ONE, SMALL, 3.5)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            records.merge(ON_H200, broken())  # type: ignore[arg-type]
        assert records.problems() == ()


WRITER = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from tune_sets import SMALL
from tuning_evidence import ON_H200, ok
from bolt_build.tuning.records.database import Records
for number in range(20):
    with Records(Path(sys.argv[1])) as records:
        records.merge(ON_H200, [ok(f"{{sys.argv[2]}}{{number:02d}}" + "0" * 61, SMALL, 1.0)])
"""


def test_processes_write_at_once(tmp_path: Path) -> None:
    """Each makes the file if it is the first, and none loses a record of another."""
    path = tmp_path / "cache" / "records.sqlite"
    program = WRITER.format(root=str(ROOT), tests=str(ROOT / "tests" / "support"))
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert len(everything(path)) == 40


def test_an_export_is_the_same_for_equal_records_and_gives_them_back(tmp_path: Path) -> None:
    found = [(ON_H200, [ok(ONE, SMALL, 3.5), ok(TWO, LARGE, 4.0)]), (ON_A100, [ok(ONE, SMALL, 9.0)])]
    texts = []
    for name, order in (("a", found), ("b", found[::-1])):
        with Records(tmp_path / name) as records:
            for fingerprint, some in order:
                records.merge(fingerprint, some[::-1])
            texts.append(json.dumps(records.export()))
    assert texts[0] == texts[1]
    with Records(tmp_path / "c") as records:
        assert records.load_export(json.loads(texts[0])) == 3
        assert records.load_export(json.loads(texts[0])) == 0
        assert json.dumps(records.export()) == texts[0]
        assert [each["record"]["problem"] for each in records.export([TWO])["records"]] == [TWO]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: None, "e.json holds no exported records: it has no version"),
        (lambda data: data | {"version": RECORD_VERSION + 1},
         "e.json has records of version 2, newer than this bolt-build, which reads 1"),
        (lambda data: data | {"fingerprints": {}}, f"e.json holds no exported records: '{ON_H200.digest}' is missing"),
        (lambda data: data | {"fingerprints": {ON_H200.digest: data["fingerprints"][ON_H200.digest] | {"tools": None}}},
         "e.json holds no exported records: expected a TuningTools, found None"),
        (lambda data: data | {"fingerprints": {"0" * 64: data["fingerprints"][ON_H200.digest]}, "records": []},
         f"e.json holds no exported records: the fingerprint {'0' * 64} is another one's"),
    ],
)  # fmt: skip
def test_an_export_that_is_none(tmp_path: Path, change: object, words: str) -> None:
    with Records(tmp_path / "r.sqlite") as records:
        records.merge(ON_H200, [ok(ONE, SMALL, 3.5)])
        data = change(json.loads(json.dumps(records.export())))  # type: ignore[operator]
        with pytest.raises(BoltError) as raised:
            records.load_export(data, "e.json")
    assert [d.message for d in raised.value.diagnostics] == [words]


def filled(path: Path) -> bytes:
    with Records(path) as records:
        records.merge(ON_H200, [ok(f"{number:064x}", SMALL, 1.0) for number in range(200)])
    return path.read_bytes()


def damaged(path: Path, why: str) -> str:
    return (
        f"error[damaged-records]: {path} is no file of records, or not a whole one: {why}\n"
        "  hint: move it away and tune again, or import what was exported of it\n"
    )


@pytest.mark.parametrize(("part", "why"), [(0, "it is empty"), (0.5, "database disk image is malformed")])
def test_a_truncated_file_is_said_and_left_as_it_is(tmp_path: Path, part: float, why: str) -> None:
    path = tmp_path / "r.sqlite"
    whole = filled(path)
    path.write_bytes(whole[: int(len(whole) * part)])
    assert complaint(path) == (damaged(path, why), ExitCode.INVALID)
    assert path.read_bytes() == whole[: int(len(whole) * part)]


def test_a_file_of_something_else_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_text("measurements, but in prose" * 100)
    assert complaint(path)[0] == damaged(path, "file is not a database")
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert complaint(other)[0] == damaged(other, "it is another program's database")


def test_a_record_that_says_nothing_known_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET data = replace(data, '\"ok\"', '\"fine\"')")
    connection.close()
    with pytest.raises(BoltError) as raised:
        everything(path)
    assert render(raised.value.diagnostics, color=False) == damaged(path, "'fine' is not a valid Status")


def test_a_newer_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert complaint(path)[0] == (
        f"error[newer-version]: {path} has records of version 2, newer than this bolt-build, which reads 1\n"
        "  hint: update the checkout that bolt-build was installed from, and install it again\n"
    )


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "r.sqlite"
    text, code = complaint(path)
    assert text == (
        f"error[records-trouble]: {path} cannot be used: {os.strerror(errno.EEXIST).lower()}\n"
        "  hint: name another place with --cache DIR\n"
    )
    assert code is ExitCode.TASK_FAILED


def records_of_any_kind() -> st.SearchStrategy[tuple[Fingerprint, Record]]:
    fingerprints, problems = st.sampled_from([ON_H200, ON_A100]), st.sampled_from([ONE, TWO])
    candidates = st.sampled_from([SMALL, LARGE, SPLIT])
    timed = st.builds(ok, problems, candidates, st.floats(0.1, 1e6))
    messages = st.text(st.characters(codec="utf-8"), max_size=5)
    lost = st.builds(failed, problems, candidates, st.sampled_from(Status), messages)
    return st.tuples(fingerprints, timed | lost)


@settings(max_examples=15, deadline=None)
@given(found=st.lists(records_of_any_kind(), max_size=8))
def test_records_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[Fingerprint, Record]]
) -> None:
    """Of the same problem, candidate and fingerprint the last one."""
    path = tmp_path_factory.mktemp("records") / "r.sqlite"
    with Records(path) as records:
        for fingerprint, record in found:
            records.merge(fingerprint, [record])
    last = {(record.problem, record.candidate, fingerprint): record for fingerprint, record in found}
    assert {(r.problem, r.candidate, fingerprint): r for fingerprint, r in everything(path)} == last


def engines(path: Path) -> list[tuple[str, str]]:
    with Records(path) as records:
        return [(fingerprint.device.name, str(record.chosen)) for fingerprint, record in records.engines()]


BASE = {ONE: SMALL, TWO: SMALL}
BEGUN_OTHERWISE = {ONE: SMALL, TWO: LARGE}


def test_engines_are_kept_by_table_first_kernels_and_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    first = played(BASE, {ONE: LARGE}, tried=[swapped(ONE, LARGE)])
    with Records(path) as records:
        assert records.engines() == ()
        assert records.merge_engines([(ON_H200, first)]) == 1
        assert records.merge_engines([(ON_H200, first)]) == 0
        assert records.merge_engines([(ON_A100, first), (ON_H200, played(BEGUN_OTHERWISE, {}))]) == 2
        assert records.merge_engines([(ON_H200, played(BASE, {}))]) == 1
        assert (ON_A100, first) in records.engines([TABLE.digest])
        assert records.engines(["0" * 64]) == ()
        assert len(records.engines()) == 3
    assert len(engines(path)) == 3


def test_an_export_has_the_engines_of_its_problems(tmp_path: Path) -> None:
    found = played(BASE, {ONE: LARGE}, tried=[swapped(ONE, LARGE)])
    with Records(tmp_path / "a") as records:
        records.merge(ON_H200, [ok(ONE, SMALL, 3.5), ok(TWO, SMALL, 3.5)])
        assert "engines" not in records.export()
        records.merge_engines([(ON_A100, found)])
        assert "engines" not in records.export([ONE])
        data = json.loads(json.dumps(records.export([ONE, TWO])))
    with Records(tmp_path / "b") as records:
        assert records.load_export(data) == 3
        assert records.engines() == ((ON_A100, found),)
        assert json.loads(json.dumps(records.export())) == data


def test_a_file_of_before_gets_engines_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE engines")
    connection.close()
    with Records(path) as records:
        assert records.engines() == ()
        records.merge_engines([(ON_H200, played(BASE, {}))])
        assert len(records.engines()) == 1
        assert len(records.problems()) == 200


def test_an_engine_that_says_nothing_known_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path) as records:
        records.merge_engines([(ON_H200, played(BASE, {}))])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE engines SET data = replace(data, '\"ok\"', '\"fine\"')")
    connection.close()
    with pytest.raises(BoltError) as raised:
        engines(path)
    assert render(raised.value.diagnostics, color=False) == damaged(path, "'fine' is not a valid Status")
