"""Tables of engines beside peers: rows of several folders, printed rows, rows of the result before, each with its
origin."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results lie meanwhile."""
    from benchmarks import record

    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(record, "RESULTS", folder)
    return folder


def bench(gpu: str, **ms: float) -> dict[str, Any]:
    """What `bolt-build bench` says of contestants that take so long."""
    agreement = [{"cosine": 1.0, "rms": 0.0, "not_finite": 0}]
    ran = [{"name": name, "median_ms": each, "agreement": agreement, "wrong": None} for name, each in ms.items()]
    return {"device": gpu, "precision": "fp16", "results": ran}


def save_row(folder: Path, name: str, date: str, **found: Any) -> Path:
    """A row's file as `measure` leaves it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"row_{name}.json"
    path.write_text(json.dumps({"environment": {"date": date, "device": f"{date}'s CPU", "command": "?"}, **found}))
    return path


def given(folder: Path, **more: Any) -> Namespace:
    folder.mkdir(exist_ok=True)
    words: dict[str, Any] = {"folder": folder, "merge": (), "printed": (), "head": None, "keep": False, "out": None}
    return Namespace(**(words | more))


def origins(lines: list[dict[str, Any]]) -> list[tuple[str, float, str, str]]:
    return [(each["model"], each["engine_ms"], each["gpu"], each["date"]) for each in lines]


def test_rows_of_several_folders_and_of_before_stand_in_one_table_with_their_gpus(
    tmp_path: Path, results: Path
) -> None:
    from benchmarks.peers import peer_rows
    from benchmarks.peers.peer_rows import PeerRow

    rows = [PeerRow(name, 8) for name in ("a", "b", "c", "d")]
    for folder, name, ms in (("one", "a", 1.0), ("two", "a", 9.0), ("two", "b", 2.0)):
        save_row(tmp_path / folder, f"{name}_b8", "today", bench=bench("NVIDIA H200", engine=ms, peer=3.0))
        (tmp_path / folder / "engines.json").write_text(
            json.dumps({name: {"verified": True, "directory": "/x"}, "another": {"verified": True}})
        )
    old = {"model": "c", "batch": 8, "engine_ms": 4.0, "best_peer": "peer", "speedup": 0.5}
    before = {"date": "before", "gpu": "NVIDIA H100", "device": "its CPU", "built": {"c": {"verified": False}}}
    (results / "table.json").write_text(json.dumps(before | {"rows": [old]}))

    arguments = given(tmp_path / "one", merge=[tmp_path / "two"], keep=True)
    found = peer_rows.measured(arguments, rows)
    lines = peer_rows.lines_of(arguments, "table", rows, found)
    assert origins(lines) == [
        ("a", 1.0, "NVIDIA H200", "today"), ("b", 2.0, "NVIDIA H200", "today"), ("c", 4.0, "NVIDIA H100", "before"),
    ]  # fmt: skip
    first = peer_rows.head_of(arguments, found)
    assert peer_rows.write(arguments, "table", first, peer_rows.by_gpu(lines), rows, lines) == 1
    made = json.loads((results / "table.json").read_text())
    assert made["gpu"] == "NVIDIA H100 and NVIDIA H200"
    assert made["rows_missing"] == ["d_b8"]
    assert {name: each["rows"] for name, each in made["summary"].items()} == {
        "all": 3, "NVIDIA H100": 1, "NVIDIA H200": 2
    }  # fmt: skip
    assert made["built"] == {
        "a": {"verified": True, "failed": None}, "b": {"verified": True, "failed": None},
        "c": {"verified": False, "failed": None},
    }  # fmt: skip

    again = peer_rows.lines_of(given(tmp_path / "none", keep=True), "table", rows, {})
    assert origins(again) == origins(lines), "rows keep the GPU that they have"


def test_a_summary_is_by_gpu_where_there_are_several() -> None:
    from benchmarks.peers.peer_rows import by_gpu

    line = {"model": "a", "batch": 1, "speedup": 2.0, "gpu": "NVIDIA H200"}
    assert by_gpu([line]).keys() == {"all"}


def test_printed_rows_and_engines_count_where_the_files_are_gone(tmp_path: Path, results: Path) -> None:
    from benchmarks.peers import peer_rows
    from benchmarks.peers.peer_rows import PeerRow, line

    rows = [PeerRow("a", 32, 1.5), PeerRow("b", 1)]
    said = [line(row, bench("NVIDIA H200", engine=1.0, peer=2.0)) for row in rows]
    log = tmp_path / "measure.log"
    log.write_text(f"batch 32: engine gets ready\n{json.dumps(said[0])}\n{json.dumps(said[1])}\nrows left: none\n")
    built = tmp_path / "build.log"
    built.write_text("build a.yaml -j 2: 1.0 s\na: {'directory': '/x', 'verified': True}\nb: ended with 1\n")
    head = save_row(tmp_path, "other_b2", "today", bench=bench("NVIDIA H200"))

    arguments = given(tmp_path / "folder", printed=[built, log], head=head)
    lines = peer_rows.lines_of(arguments, "table", rows, {})
    assert origins(lines) == [("a", 1.0, "NVIDIA H200", "today"), ("b", 1.0, "NVIDIA H200", "today")]
    assert lines[0]["reached"] is True
    assert peer_rows.engines_of(arguments, "table", rows) == {
        "a": {"verified": True, "failed": None}, "b": {"verified": None, "failed": "ended with 1"}
    }  # fmt: skip
    measured = {rows[1]: json.loads(save_row(tmp_path, "b_b1", "later", bench=bench("H100", engine=7.0)).read_text())}
    assert origins(peer_rows.lines_of(arguments, "table", rows, measured)) == [
        ("a", 1.0, "NVIDIA H200", "today"), ("b", 7.0, "H100", "later"),
    ]  # fmt: skip


@pytest.mark.parametrize("head", [None, Path("nowhere.json")])
def test_printed_rows_need_a_row_of_their_machine(tmp_path: Path, head: Path | None) -> None:
    from benchmarks.peers.peer_rows import head_of

    with pytest.raises(SystemExit, match=r"^close: rows that were printed need --head, a row's file of their machine$"):
        head_of(given(tmp_path, head=head), {})


@pytest.mark.parametrize(
    ("peers", "fastest"),
    [({"source": 5.0}, None), ({"source": 5.0, "source-frozen": 8.0}, "source"), ({"torch-graph": 3.0}, "torch-graph")],
)
def test_eager_alone_is_not_called_the_fastest_peer(peers: dict[str, float], fastest: str | None) -> None:
    from benchmarks.peers.peer_rows import PeerRow, line
    from benchmarks.peers.untuned_networks import compared

    row = compared(line(PeerRow("a", 8), bench("NVIDIA H200", **{"engine": 1.0, **peers})))
    assert (row["best_peer"], row["speedup"]) == (fastest, None if fastest is None else peers[fastest])


def test_a_result_of_engines_in_bf16_names_its_gpu_and_no_folder() -> None:
    from benchmarks.peers.bf16_engines import closed

    found = {"command": "?", "date": "today", "rows": [{"recipe": "a_bf16", "directory": "/x/a", "verified": True}]}
    assert closed(found, "NVIDIA H200") == {
        "command": "python benchmarks/peers/bf16_engines.py FOLDER build (then measure, close)", "date": "today",
        "gpu": "NVIDIA H200", "rows": [{"recipe": "a_bf16", "verified": True}],
    }  # fmt: skip
