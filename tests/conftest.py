"""Golden texts: files under `tests/data/` that a test names, rewritten only by `pytest --update-goldens`. And one cache
of compiled objects for all of a test run, so that each engine compiles only what is its own.
"""

from __future__ import annotations

import os

# Before NumPy is imported, here and by what tests start: each process would have threads that wait by spinning, while
# the run's workers have the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import explored
import pytest
from quick_tests import is_left_out, is_quick, starts_nothing
from shared_folders import RUN, SharedFolder, entered
from tiny_engine import build_engine, tiny_constants, tiny_plan

from bolt_build.runtime import names

DATA = Path(__file__).parent / "data"

# Before any test is read: settings take what they do not state from the profile that is loaded when they are made.
explored.load_profile(random=explored.times() is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what tests compare with golden files")


def pytest_configure() -> None:
    # A shell starts what it puts in the background with SIGINT ignored, nohup with SIGHUP, and every child inherits
    # that: builds that tests interrupt would not notice.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test can be chosen are not even read: some take seconds to make their parameters."""
    return is_left_out(collection_path, config.option.markexpr)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What collecting makes stays to the end, so that no search for garbage need look at it, then or later."""
    gc.disable()
    _import_own_share(session.config)
    yield
    gc.enable()
    gc.freeze()
    # As in processes of the command line: most of what tests make lives as long as they do.
    gc.set_threshold(20_000, 20, 20)


def _import_own_share(config: pytest.Config) -> None:
    """Each worker of a run of all tests imports another part of them first: of files whose bytecode is not there yet
    it makes a part, and finds the others' when it comes to them. All at once would each make all of it."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    tests = Path(__file__).parent
    if worker is None or [(config.invocation_params.dir / each).resolve() for each in config.args] != [tests]:
        return
    files = [path for path in sorted(tests.rglob("test_*.py")) if not is_left_out(path, config.option.markexpr)]
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    # As pytest has them once it comes to the first file of each.
    sys.path[:0] = sorted({str(path.parent) for path in files} - set(sys.path))
    for path in files[len(files) * number // count :]:
        # Collecting says what is wrong with a file, or why it is skipped.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(path.stem)


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_quick(item.path) and not any(any(item.iter_markers(name)) for name in ("gpu", "large")):
        item.add_marker(pytest.mark.quick)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    factor = explored.times()
    if factor is not None:
        # Once each: a test of many parameters is many items.
        for test in {item.function: None for item in items if isinstance(item, pytest.Function)}:
            explored.explore(test, factor)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with starts_nothing(item.nodeid) if item.get_closest_marker("quick") else nullcontext():
        yield


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


def _base(factory: pytest.TempPathFactory) -> Path:
    """The same for every worker of a parallel run."""
    base = factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is learnt of tools goes to no user's folder; the same for every worker of a parallel run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(_base(tmp_path_factory) / "state"))
        # Nor do tests know what their user has set.
        patch.setenv("XDG_CONFIG_HOME", str(_base(tmp_path_factory) / "settings"))
        # onnxruntime, which tests import themselves, would send what it runs to its maker.
        patch.setenv("ORT_DISABLE_TELEMETRY", "1")
        patch.setenv(RUN, str(_base(tmp_path_factory)))
        # On a busy machine a build may be silent for long, and says no more for that.
        patch.setattr("bolt_build.report.pulse.QUIET", 3600.0)
        # Where nothing may be kept beside the sources, hundreds of processes would compile the same modules.
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(_base(tmp_path_factory) / "bytecode"))
        yield


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XDG_CACHE_HOME may be for tests that build engines: the same for every worker of a parallel run."""
    return _base(tmp_path_factory) / "cache"


@pytest.fixture(scope="session")
def shared_folder() -> SharedFolder:
    return entered


@pytest.fixture(scope="session")
def tiny_library() -> Path:
    """The engine of `tiny_engine.py`, built once for all tests that only read it; its weights lie beside it."""
    with entered("tiny-library") as folder:
        library = folder / names.library(tiny_plan().name)
        return library if library.exists() else build_engine(folder, tiny_plan(), tiny_constants())
