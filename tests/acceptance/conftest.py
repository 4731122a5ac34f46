"""What acceptance tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(cache_home: Path) -> Path:
    """The directory of the local cache that builds of acceptance tests share with all others of the run."""
    return cache_home / "bolt-build"
