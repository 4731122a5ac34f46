"""`build --timings` of a real build."""

from __future__ import annotations

import json
from pathlib import Path

from html_pages import read_page
from recipe_projects import new_project


def test_the_page_says_what_the_json_says(tmp_path: Path, cache_home: Path) -> None:
    project = new_project(tmp_path / "p", cache_home)
    said = project.bolt("tiny.yaml", "--format", "json", "--timings", "t.html").splitlines()
    events = [event for event in map(json.loads, said) if event["event"] == "task" and event["kind"] == "finished"]
    page = read_page((project.path / "t.html").read_text())
    rows = page.rows("Every task")
    assert sorted((row["task"], row["seconds"], row["how"] == "from the cache", row["why"]) for row in rows) == sorted(
        (event["label"], f"{event['seconds']:.3f}", event["cached"], "; ".join(event["reasons"])) for event in events
    )
    path = page.rows("Each task needs what the one before makes")
    assert path[-1]["task"] == "verify against onnxruntime"
    assert [row["task"] for row in rows if row["critical"]] == [row["task"] for row in path]

    project.bolt("tiny.yaml", "-q", "--timings", "t.html")
    assert read_page((project.path / "t.html").read_text()).facts["tasks"] == "none ran"
