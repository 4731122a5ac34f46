"""Pages of a real build: `build --timings` says what the events say, `report` what the build left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from html_pages import read_page
from recipe_projects import Project, new_project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Project:
    """Built once with a page; what it printed lies beside it."""
    project = new_project(tmp_path_factory.mktemp("pages") / "p", cache_home)
    said = project.bolt("tiny.yaml", "--format", "json", "--timings", "t.html")
    (project.path / "events.jsonl").write_text(said)
    return project


def test_timings_say_what_the_events_say(built: Project) -> None:
    lines = map(json.loads, (built.path / "events.jsonl").read_text().splitlines())
    events = [event for event in lines if event["event"] == "task" and event["kind"] == "finished"]
    page = read_page((built.path / "t.html").read_text())
    rows = page.rows("Every task")
    assert sorted((row["task"], row["seconds"], row["how"] == "from the cache", row["why"]) for row in rows) == sorted(
        (event["label"], f"{event['seconds']:.3f}", event["cached"], "; ".join(event["reasons"])) for event in events
    )
    path = page.rows("Each task needs what the one before makes")
    # Verification takes no time where an engine of another test has left it in the cache.
    assert path[-1]["task"] in ("verify against onnxruntime", "write manifest.json")
    assert [row["task"] for row in rows if row["critical"]] == [row["task"] for row in path]

    built.bolt("tiny.yaml", "-q", "--timings", "again.html")
    assert read_page((built.path / "again.html").read_text()).facts["tasks"] == "none ran"


def test_a_report_has_the_errors_and_sizes_that_the_build_left(built: Project) -> None:
    assert built.bolt("report", "tiny.yaml", "--out", "r.html").startswith("wrote r.html\n")
    page = read_page((built.path / "r.html").read_text())
    checked = json.loads((built.host / "verify.json").read_text())
    for batch in checked["batches"]:
        rows = page.rows(f"Errors by layer of tiny for host, batch {batch['batch']}")
        assert [(row["layer"], row["max |error|"], row["verdict"]) for row in rows] == [
            (each["name"], f"{each['max_abs']:.3e}", "passes") for each in batch["layers"]
        ]
    assert [row["output"] for row in page.rows("Outputs of tiny for host")] == ["y", "y"]
    assert page.facts["verification"] == f"agrees with {checked['against']}"
    assert page.facts["weights"].endswith("kB")
    (built.host / "libtiny.so").unlink()
    built.bolt("report", "tiny.yaml", "--out", "r.html")
    text = (built.path / "r.html").read_text()
    assert "Sizes and errors are not here: generated/tiny/host: libtiny.so is missing or was changed." in text
