"""The store of a team on the command line and in a user's settings: which it is, who writes, and what is said of it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
from recipe_complaints import HEAD
from recipe_projects import Project, new_project
from store_servers import http_store

pytest.importorskip("obstore", reason="pip install 'bolt-build[shared,test]'")

from bolt_build.cli.cache_arguments import add_shared_cache, shared_place
from bolt_build.cli.main import main
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.schema.user_settings import read_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's settings would lie."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "bolt-build" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def place(*words: str) -> SharedPlace | None:
    parser = argparse.ArgumentParser()
    add_shared_cache(parser)
    return shared_place(parser.parse_args(words))


def complaint(*words: str) -> str:
    with pytest.raises(BoltError) as raised:
        place(*words)
    return render(raised.value.diagnostics, color=False)


def test_options_come_before_settings(settings: Path) -> None:
    assert place() is None
    assert place("--shared-cache", "/team") == SharedPlace("/team", write=False, timeout=10.0)
    settings.write_text("shared: {cache: s3://team/bolt, write: true, timeout: 2.5}\n")
    assert place() == SharedPlace("s3://team/bolt", write=True, timeout=2.5)
    assert place("--shared-cache", "none") is None
    # Whoever may write the one store has not said so of another.
    assert place("--shared-cache", "/other") == SharedPlace("/other", write=False, timeout=2.5)
    assert place("--shared-cache", "/other", "--shared-cache-write") == SharedPlace("/other", write=True, timeout=2.5)
    settings.write_text("shared: {cache: ~/team}\n")
    assert place("--shared-cache-write") == SharedPlace(str(Path.home() / "team"), write=True, timeout=10.0)


def test_all_that_is_wrong_with_settings_is_said_at_once(settings: Path) -> None:
    settings.write_text("shared:\n  cashe: s3://team\n  write: maybe\n  timeout: 0\nother: 1\n")
    with pytest.raises(BoltError) as raised:
        read_settings(settings)
    said = render(raised.value.diagnostics, color=False).replace(str(settings), "config.yaml")
    assert said == (
        "config.yaml:5:1: error[unknown-key]: unknown key 'other'\n"
        "  5 | other: 1\n"
        "    | ^^^^^ its keys: shared\n"
        "config.yaml:2:3: error[unknown-key]: unknown key 'shared.cashe'\n"
        "  2 |   cashe: s3://team\n"
        "    |   ^^^^^ did you mean 'cache'?\n"
        "config.yaml:2:3: error[missing-key]: 'shared' names no 'cache'\n"
        "  2 |   cashe: s3://team\n"
        "    |   ^ such as cache: s3://team/bolt\n"
        "config.yaml:3:10: error[wrong-type]: 'shared.write' must be true or false, found the string 'maybe'\n"
        "  3 |   write: maybe\n"
        "    |          ^^^^^ write: true is for those whom the team trusts to fill it\n"
        "config.yaml:4:12: error[wrong-type]: 'shared.timeout' must be a number of seconds above 0, at most an hour, "
        "found the integer 0\n"
        "  4 |   timeout: 0\n"
        "    |            ^ such as timeout: 10\n"
    )


@pytest.mark.parametrize("text", ["shared: 1\n", "- 1\n", "shared: {cache: {}}\n", "shared: {cache: }\n"])
def test_settings_of_another_form_are_refused(settings: Path, text: str) -> None:
    settings.write_text(text)
    assert "error[wrong-type]" in complaint()


@pytest.mark.parametrize("url", ["ftp://team", "s3://", "http:/team", "memory:///", "https:team"])
def test_what_is_no_store(url: str) -> None:
    assert complaint("--shared-cache", url) == (
        f"error[bad-shared-cache]: '{url}' names no store that can be shared\n"
        "  hint: a directory, or a URL that begins with one of: s3://, https://, http://, gs://, az://\n"
    )


def test_writing_needs_a_store(settings: Path) -> None:
    assert complaint("--shared-cache-write") == (
        "error[no-shared-cache]: there is no shared cache to write\n"
        "  hint: name it with --shared-cache URL, or in your settings\n"
    )


def test_what_is_missing_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BoltError) as raised:
        place("--shared-cache", "/team")
    assert raised.value.exit_code is ExitCode.TOOL_MISSING
    assert render(raised.value.diagnostics, color=False) == (
        "error[missing-library]: a shared cache needs obstore, which is not installed\n"
        "  hint: python -m pip install obstore\n"
    )


def test_a_store_that_is_not_encrypted_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert place("--shared-cache", "http://me:secret@cache.example/team") is not None
    assert capsys.readouterr().err == (
        "warning[in-the-clear]: http://cache.example/team is not encrypted: whoever is on the way to it can put code "
        "into engines\n"
        "  hint: use https://\n"
    )
    for safe in ("https://cache.example/team", "http://127.0.0.1:8080/team", "/team"):
        assert place("--shared-cache", safe) is not None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("verb", ["build", "explore", "tune", "emulate"])
def test_every_verb_that_runs_tasks_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(HEAD.replace("{host: {precision: fp32}}", "{h200: {}}"))
    assert main([verb, "net.yaml", "--cache", "cache", "--shared-cache", "ftp://x"]) == ExitCode.USAGE
    assert "error[bad-shared-cache]: 'ftp://x' names no store" in capsys.readouterr().err


def digests(project: Project) -> dict[str, str]:
    data = json.loads((project.host / "manifest.json").read_text())
    return {each["name"]: each["digest"]["sha256"] for each in data["subject"]}


def origins(project: Project, *words: str) -> dict[str, set[str]]:
    """What became of the tasks by their kind, and what was noted."""
    found: dict[str, set[str]] = {"note": set()}
    lines = project.bolt("tiny.yaml", "--format", "json", *words).splitlines()
    for line in map(json.loads, (line for line in lines if line.startswith("{"))):
        if line.get("kind") == "finished":
            how = "shared" if line.get("shared") else "local" if line.get("cached") else "made"
            found.setdefault(line["label"].split()[0], set()).add(how)
        elif line.get("kind") == "note":
            found["note"].add(line["text"])
    assert json.loads(lines[-1])["exit_code"] == 0
    return found


def test_a_fresh_clone_with_the_shared_cache_alone_compiles_nothing(tmp_path: Path, cache_home: Path) -> None:
    """Two of them, in other places, with one task and two at a time: the same bytes."""
    first = new_project(tmp_path / "first", cache_home)
    with http_store() as store:
        shared = ("--shared-cache", store.url)
        origins(first, *shared, "--shared-cache-write")
        assert not any("GET" in request for request in store.requests if "/blobs/" in request)
        for jobs, name in enumerate(("second", "a/third"), 1):
            clone = new_project(tmp_path / name, tmp_path / name / "empty")
            said = clone.bolt("tiny.yaml", "--dry-run", *shared)
            assert said.count("(from the cache)") == said.count("compile ") + said.count("link ")
            found = origins(clone, *shared, "-j", str(jobs))
            assert found["compile"] == found["link"] == {"shared"}
            assert found["note"] == set()
            assert digests(clone) == digests(first)
        # What came from the store is in the local cache: another build asks nobody.
        again = new_project(tmp_path / "again", clone.cache)
        store.requests.clear()
        assert origins(again, *shared)["compile"] == {"local"}
        assert store.requests == []
