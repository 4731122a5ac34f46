"""What acceptance tests share: one cache of compiled objects for all of a test run, so that each engine compiles only
what is its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the local cache, the same for every worker of a parallel run."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if base.name.startswith("popen-") else base
    return run / "bolt-build-cache"
