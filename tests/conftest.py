"""Golden texts: files under `tests/data/` that a test names, rewritten only by `pytest --update-goldens`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what tests compare with golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` asserts that `text` is what `tests/data/<name>` holds; a missing file fails."""

    def check(name: str, text: str) -> None:
        path = DATA / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {name}: run pytest --update-goldens and read what it wrote"
        assert text == path.read_text(encoding="utf-8")

    return check
