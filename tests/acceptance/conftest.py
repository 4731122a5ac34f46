"""What acceptance tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_builds import Built, build_engine
from nets import pooling_net, residual_net
from shared_folders import SharedFolder


@pytest.fixture(scope="session")
def cache(cache_home: Path) -> Path:
    """The directory of the local cache that builds of acceptance tests share with all others of the run."""
    return cache_home / "bolt-build"


@pytest.fixture(scope="session")
def right_engines(cache: Path, shared_folder: SharedFolder) -> tuple[Built, Built]:
    """Of the residual and the pooling net, for tests that only read them: whoever comes second has nothing to build."""
    with shared_folder("right-engines") as folder:
        residual = build_engine(folder / "residual", "residual", residual_net(), cache, batch=[2])
        pooling = build_engine(folder / "pooling", "pooling", pooling_net(), cache, batch=[2])
    assert (residual.complaints, pooling.complaints) == ([], [])
    return residual, pooling
