"""A small target whose compilations can run anywhere, and Dask's programs as processes that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from build_graphs import plan_of

from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code.own_sources import PACKAGE
from bolt_build.build.planning.context import tool_values
from bolt_build.build.planning.plan_file import save_plan_file
from bolt_build.build.planning.task_graph import tool_places
from bolt_build.build.running.session import SessionOptions, SessionPart, SessionResult, run_session
from bolt_build.build.tasks import Task
from bolt_build.digest import digest_file
from bolt_build.toolchain import probe

PATIENCE_SECONDS = 300
_CXX = probe(("cxx",))


def compile_task(name: str, *, wait: str = "") -> Task:
    """Compiles src/NAME.cpp, which includes src/all.h; after the shell's `wait`."""
    compiler = ("${cxx}", "-c", f"src/{name}.cpp", "-o", f"${{out}}/{name}.o", "-Isrc", "-I${package}/runtime/include")
    flags = ("-ffile-prefix-map=${directory}=.", "-ffile-prefix-map=${package}=bolt_build", "-g1")
    argv = (*compiler, *flags) if not wait else ("/bin/sh", "-c", f'{wait}; exec "$@"', "sh", *compiler, *flags)
    values = tool_values(_CXX.tools)
    return Task(f"compile-{name}", "compile", f"compile {name}.cpp", argv, (f"src/{name}.cpp", "src/all.h"),
                (f"{name}.o",), values)  # fmt: skip


@dataclass
class Sources:
    """A target's directory with sources `a.cpp`, `b.cpp` and so on, which are compiled and linked."""

    root: Path
    names: tuple[str, ...] = ("a", "b", "c")
    wait: str = ""
    recipe: RecipeDirectory = field(init=False)

    def __post_init__(self) -> None:
        self.recipe = RecipeDirectory(self.root / "toy")
        target = self.recipe.target("host")
        (target.path / "src").mkdir(parents=True)
        (target.path / "src" / "all.h").write_text('#include "bolt_engine.h"\n')
        for name in self.names:
            text = f'#include "all.h"\nint {name}() {{ return sizeof(bolt_model_options) + __LINE__; }}\n'
            (target.path / "src" / f"{name}.cpp").write_text(text)
        objects = tuple(f"{name}.o" for name in self.names)
        link = Task(
            "link", "link", "link lib.so", ("${cxx}", "-shared", "-o", "${out}/lib.so", *objects), objects, ("lib.so",),
            tool_values(_CXX.tools),
        )  # fmt: skip
        tasks = (*(compile_task(name, wait=self.wait) for name in self.names), link)
        places = {"directory": str(target.path), "python": sys.executable, "package": str(PACKAGE)}
        plan = plan_of(tasks, places=tuple((places | tool_places(_CXX.tools)).items()))
        save_plan_file(target.plan, plan)

    def build(self, scheduler: str | None, jobs: int = 3) -> tuple[SessionResult, list[TaskEvent]]:
        """Build with no cache; everything that was told."""
        told: list[TaskEvent] = []
        options = SessionOptions(jobs, True, None, 1 << 30, scheduler=scheduler)
        with directory_claim(self.recipe.path, wait=True, say=print) as claim:
            result = run_session([SessionPart(self.recipe.path, ("host",), claim)], options, told.append)
        return result, told

    @property
    def digests(self) -> dict[str, str]:
        folder = self.recipe.target("host").path
        return {path.name: digest_file(path) for path in sorted(folder.glob("*.*o"))}


def notes(told: Sequence[TaskEvent]) -> list[str]:
    return sorted(event.text for event in told if event.kind is EventKind.NOTE)


def free_port() -> int:
    """One of loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> None:
    """Wait until somebody listens at a port of loopback. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing answers at {port}")


@dataclass
class DaskProcesses:
    """A scheduler and its workers, each a process group of its own. `protocol` is "tcp" or "tls"."""

    folder: Path
    port: int
    protocol: str = "tcp"
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.protocol}://127.0.0.1:{self.port}"

    def start(self, name: str, *more: str) -> None:
        """Start "scheduler", or a worker of that name; `more` are further arguments of its."""
        program = [sys.executable, "-m", f"distributed.cli.dask_{'scheduler' if name == 'scheduler' else 'worker'}"]
        words = ["--host", "127.0.0.1", "--protocol", self.protocol]
        if name == "scheduler":
            words += ["--port", str(self.port), "--no-dashboard"]
        else:
            words += [self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny", "--name", name]
            words += ["--local-directory", str(self.folder), "--death-timeout", "60"]
        words += more
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                [*program, *words], stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(PACKAGE.parent), "PYTHONWARNINGS": "ignore"},
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL, as of a machine that is gone."""
        child = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def stop(self) -> None:
        for name in [*self.running]:
            self.kill(name)
