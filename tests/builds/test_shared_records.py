"""Measurements in a team's store: a problem is measured once, and what others measured is checked before it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from store_servers import HttpStore, http_store
from tune_projects import Project, by_prediction, last_first, new_project

pytest.importorskip("obstore", reason="pip install 'bolt-build[shared]'")

from bolt_build.build.sharing.client import StoreClient
from bolt_build.digest import digest
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.run import TuneOptions, tune
from bolt_build.tuning.shared_records import SharedRecords


@pytest.fixture
def server() -> Iterator[HttpStore]:
    with http_store() as found:
        yield found


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        if not text.startswith("planning"):
            self.lines.append(text)


def tuned(
    project: Project, server: HttpStore, *, write: bool = True, **options: object
) -> tuple[TuneResult, list[str]]:
    """A tuning with the team's store, and what it said."""
    place = SharedPlace(server.url, write=write, timeout=60.0)
    said = Said()
    asked = replace(TuneOptions(replace(project.build, shared=place)), **options)  # type: ignore[arg-type]
    return tune(project.recipe, asked, said), said.lines  # type: ignore[arg-type]


def measured(project: Project, server: HttpStore, medians: object = by_prediction, *, write: bool = True) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    results = project.results(bundle, medians)  # type: ignore[arg-type]
    assert tuned(project, server, write=write, results=results)[0].exit_code == 0


def records(project: Project) -> dict[str, object]:
    with Records(project.path / "cache" / "tuning" / "records.sqlite") as found:
        return found.export()


def test_what_one_measures_another_chooses_from(server: HttpStore, tmp_path: Path) -> None:
    first, second = new_project(tmp_path / "first"), new_project(tmp_path / "second")
    measured(first, server, last_first)
    result, said = tuned(second, server, write=False, from_records=True)
    assert (result.exit_code, said) == (0, [])
    assert second.lock.read_bytes() == first.lock.read_bytes()
    assert records(second) == records(first)
    assert all(name.endswith("/0.json") for name in server.named("records"))


def test_a_reader_gives_nothing(server: HttpStore, tmp_path: Path) -> None:
    measured(new_project(tmp_path / "first"), server, write=False)
    assert server.objects == {}


def test_what_was_measured_before_there_was_a_store_is_given_to_it(server: HttpStore, tmp_path: Path) -> None:
    project = new_project(tmp_path / "first")
    project.imported(by_prediction)
    assert tuned(project, server, from_records=True)[0].exit_code == 0
    names = server.named("records")
    assert len(names) == len(project.plan().problems.problems)
    # Once: what the store says is not said again.
    assert tuned(project, server, from_records=True)[0].exit_code == 0
    assert server.named("records") == names


def test_own_measurements_come_first_and_are_appended(server: HttpStore, tmp_path: Path) -> None:
    first, second = new_project(tmp_path / "first"), new_project(tmp_path / "second")
    measured(first, server, by_prediction)
    measured(second, server, last_first)
    assert first.lock.read_bytes() != second.lock.read_bytes()
    assert {name.rpartition("/")[2] for name in server.named("records")} == {"0.json", "1.json"}
    before = second.lock.read_bytes()
    assert tuned(second, server, from_records=True)[0].exit_code == 0
    assert second.lock.read_bytes() == before
    # Who has measured nothing takes what was measured first.
    third = new_project(tmp_path / "third")
    assert tuned(third, server, from_records=True)[0].exit_code == 0
    assert third.lock.read_bytes() == first.lock.read_bytes()


def test_two_that_append_at_once_lose_nothing(server: HttpStore, tmp_path: Path) -> None:
    """The second finds the number taken that it had meant to take."""
    project = new_project(tmp_path / "first")
    measured(project, server, write=False)
    with Records(project.path / "cache" / "tuning" / "records.sqlite") as found:
        kept = [found.all([problem]) for problem in found.problems()]
    mine = max(([*each] for each in kept), key=len)
    problem = mine[0][1].problem
    assert len(mine) > 1
    clients = [SharedRecords(StoreClient(SharedPlace(server.url, write=True, timeout=60.0)), print) for _ in range(2)]
    for client in clients:
        client.taken([problem], [])
    clients[0].give(mine[:1], [])
    clients[1].give(mine, [])
    reader = SharedRecords(StoreClient(SharedPlace(server.url, timeout=60.0)), print)
    assert reader.taken([problem], [])[0] == mine
    assert len(server.objects) == 2


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (lambda page: b"{", "it is damaged"),
        (lambda page: b"[1]", "it is damaged"),
        (lambda page: page.replace(b'"status": "ok"', b'"status": "wrong"'), "it was changed"),
        (lambda page: resealed(page, lambda data: data | {"records": []}), "it is of something else"),
        (lambda page: resealed(page, foreign), "it is of something else"),
        (lambda page: resealed(page, lambda data: data | {"fingerprints": {}}), "it holds no exported records: '"),
    ],
)
def test_what_is_not_believed_is_left_out_and_said(server: HttpStore, tmp_path: Path, lie: object, why: str) -> None:
    first, second = new_project(tmp_path / "first"), new_project(tmp_path / "second")
    measured(first, server)
    name = server.named("records")[0]
    server.objects[name] = lie(server.objects[name])  # type: ignore[operator]
    result, said = tuned(second, server, write=False, from_records=True)
    (line,) = said
    page = name.removeprefix("/team/")
    assert line.startswith(f"{page} in the shared cache {server.url} is not taken: {why}")
    problems = len(first.plan().problems.problems)
    assert result.exit_code == (0 if problems > 1 else 4)
    with Records(second.path / "cache" / "tuning" / "records.sqlite") as found:
        assert len(found.problems()) == problems - 1


def resealed(page: bytes, change: object) -> bytes:
    data = change(json.loads(page)["data"])  # type: ignore[operator]
    return json.dumps({"seal": digest(data), "data": data}).encode()


def foreign(data: dict[str, object]) -> dict[str, object]:
    """The records of another problem."""
    text = json.dumps(data)
    problem = data["records"][0]["record"]["problem"]  # type: ignore[index]
    found: dict[str, object] = json.loads(text.replace(problem, "0" * 64))
    return found


def test_a_store_that_goes_away_is_said_once_and_ends_nothing(server: HttpStore, tmp_path: Path) -> None:
    project = new_project(tmp_path / "first")
    project.imported(by_prediction)
    server.hangs = True
    place = SharedPlace(server.url, timeout=0.4)
    said = Said()
    options = TuneOptions(replace(project.build, shared=place), from_records=True)
    assert tune(project.recipe, options, said).exit_code == 0  # type: ignore[arg-type]
    assert said.lines == [
        f"the shared cache {server.url} does not answer within 0.4 s: what others measured is not known"
    ]
