"""The local cache on the command line: its place, its limit, and who may write into it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from recipe_complaints import HEAD

from bolt_build.build.builder import BuildOptions
from bolt_build.build.caching.cache import DEFAULT_LIMIT, Cache
from bolt_build.cli.cache_arguments import add_task_cache, size, with_cache
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode


def options(*words: str) -> BuildOptions:
    parser = argparse.ArgumentParser()
    add_task_cache(parser, may_only_read=True)
    return with_cache(BuildOptions(), parser.parse_args(words))


def test_a_limit_and_reading_alone_reach_the_cache(tmp_path: Path) -> None:
    place = tmp_path / "cache"
    assert options("--cache", str(place)).local_cache == Cache(place, DEFAULT_LIMIT, read_only=False)
    words = ("--cache", str(place), "--cache-limit", "10GiB", "--cache-read-only")
    assert options(*words).local_cache == Cache(place, 10 << 30, read_only=True)


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("4096", 4096), ("500MB", 500_000_000), ("2GiB", 2 << 30), ("1 tib", 1 << 40)]
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "-1", "1.5GiB", "12XB", "GiB", "9" * 400, "\u0663MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size, such as 500MB or 2GiB"):
        size(text)


@pytest.mark.parametrize("verb", ["build", "explore", "tune", "emulate"])
def test_a_cache_that_others_can_write_ends_every_verb_that_runs_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(HEAD.replace("{host: {precision: fp32}}", "{h200: {}}"))
    Path("cache").mkdir()
    Path("cache").chmod(0o777)
    assert main([verb, "net.yaml", "--cache", "cache"]) == ExitCode.USAGE
    said = capsys.readouterr().err.replace(str(tmp_path / "cache"), "CACHE")
    assert said == (
        "error[cache-not-private]: the cache CACHE can be written by others: whoever writes into it can put code into "
        "engines\n"
        "  hint: if nobody but you has written into it, chmod -R go-w CACHE; or name another with --cache DIR\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "net.yaml"]
