"""Pages and pictures in a real browser: it draws them, shows what was written, and its console stays empty.

Skipped where no Chromium is installed: what the pages say is tested without one too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from html_pages import read_page
from locked_net import new_net, whole_engine

from bolt_build.build.timings import Stage, TimedTask, Timings
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.report.pages.timings import timings_page
from bolt_build.scratch import scratch_folder

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    return found


def shown(browser: str, page: Path, profile: Path) -> str:
    """The document as the browser holds it. Fails where its console has anything to say."""
    words = [browser, *_FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.resolve().as_uri()]
    with scratch_folder() as folder:  # it leaves files there, and makes sockets, whose paths must be short
        own = os.environ | {"TMPDIR": str(folder)}
        done = subprocess.run(words, env=own, capture_output=True, text=True, check=True, timeout=120)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


def test_a_report_and_its_chart(
    browser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The browser has the tables, the facts and the tips of what was written, and repairs nothing."""
    monkeypatch.chdir(tmp_path)
    net = new_net()
    net.lock(whole_engine(net.tuned()))
    assert main(["report", "net.yaml", "--cache", "cache", "--out", "r.html"]) == ExitCode.OK
    written, seen = read_page(Path("r.html").read_text()), read_page(shown(browser, Path("r.html"), tmp_path / "one"))
    assert seen.tables == written.tables
    assert seen.facts == written.facts
    assert seen.titles == written.titles
    assert sorted(seen.tags) == sorted(written.tags)

    pytest.importorskip("pygraphviz", reason="SVG is drawn by pygraphviz, which is not installed")
    capsys.readouterr()
    assert main(["plan", "net.yaml", "--cache", "cache", "--format", "svg"]) == ExitCode.OK
    Path("plan.svg").write_text(capsys.readouterr().out)
    drawn = shown(browser, Path("plan.svg"), tmp_path / "two")
    assert "parsererror" not in drawn
    assert len(re.findall("<text", drawn)) == len(re.findall("<text", Path("plan.svg").read_text()))


def test_the_page_of_timings(browser: str, tmp_path: Path) -> None:
    tasks = tuple(
        TimedTask(
            "toy", "host", f"t{index}", f"compile <{index}> & more", how, index * 0.7, 1.5, (why,), 2.0, rule, gpu
        )
        for index, (how, why, rule, gpu) in enumerate(
            [("run", "a < b", "compile", False), ("cache", "", "link", False), ("failed", "x", "verify", True)]
        )
    )
    path = tmp_path / "t.html"
    path.write_text(timings_page(Timings(tasks, 3, 5.0, (Stage("planning toy for host", 0.0, 0.4),))))
    written, seen = read_page(path.read_text()), read_page(shown(browser, path, tmp_path / "profile"))
    assert (seen.tables, seen.facts, seen.titles) == (written.tables, written.facts, written.titles)
    assert sorted(seen.tags) == sorted(written.tags)
