"""What is handed out: wheel and sdist have all that they need, and the page has no link that leads nowhere.

That the wheel works by itself in an environment of its own is what `test_ci_pipelines.py` shows.
"""

from __future__ import annotations

import email
import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)]+)\)")


def build(project: Path, folder: Path, kind: str) -> Path:
    """A distribution of a project's directory: "sdist" or "wheel"."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("needs hatchling, as the extra `test` brings it")
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, folder, "sdist")) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def files(folder: Path, *parts: str) -> set[str]:
    paths = (path for part in parts for path in (folder / part).rglob("*"))
    return {str(path.relative_to(folder)) for path in paths if path.is_file() and "__pycache__" not in path.parts}


def test_the_sdist_has_the_project_whole(sdist: Path) -> None:
    """Tests, benchmarks and pipelines too: `.ci/run` works in it."""
    parts = (".ci", "benchmarks", "bolt_build", "ci", "docs", "examples", "recipes", "tests")
    assert files(sdist, *parts) == {name for name in files(ROOT, *parts) if ".egg-info" not in name}
    single = ("pyproject.toml", "hatch_build.py", "slim.txt", "SConstruct", "LICENSE", "CONTRIBUTING.md")
    assert [name for name in single if not (sdist / name).is_file()] == []


def test_a_wheel_of_the_sdist_has_all_that_runs_and_the_recipes(sdist: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(sdist, tmp_path, "wheel")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(wheel.read(about))
    assert names == files(ROOT, "bolt_build") | {f"bolt_build/{name}" for name in files(ROOT, "recipes")}
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert text.startswith("# bolt-build\n")
    assert "<!--" not in text
    assert [link for link in LINK.findall(text) if "://" not in link] == []


@pytest.fixture
def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_a_published_page_are_absolute(hook: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = hook.page(readme, "https://example.org/bolt-build")
    assert [link for link in LINK.findall(page) if not link.startswith("https://example.org/bolt-build/")] == []
    assert "](https://example.org/bolt-build/raw/main/docs/build.svg)" in page
    assert "[recipes](https://example.org/bolt-build/blob/main/docs/recipes.md)" in page
    paths = [link.removeprefix("https://example.org/bolt-build/").split("/main/")[1] for link in LINK.findall(page)]
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert hook.urls("https://example.org/bolt-build")["Issues"] == "https://example.org/bolt-build/issues"


def test_words_of_links_stay_where_there_is_nothing_to_link_to(hook: ModuleType) -> None:
    text = "![a picture](docs/a.svg)\n[recipes](docs/recipes.md), [LICENSE](LICENSE), [one](https://example.org)\n"
    assert hook.page(text, "") == "\nrecipes (docs/recipes.md), LICENSE, [one](https://example.org)\n"
    assert hook.urls("") == {}
