"""Runs one job on the machine that it was sent to, in a folder of its own."""

from __future__ import annotations

import functools
import os
import sys
import time

from bolt_build.build.own_code.own_sources import PACKAGE
from bolt_build.build.planning.plan_file import Places
from bolt_build.build.planning.task_graph import tool_places
from bolt_build.build.process_groups import ProcessGroups
from bolt_build.build.remote.job import Answer, Job, SentFile, package_digest
from bolt_build.build.task_environment import task_environment
from bolt_build.scratch import scratch_folder
from bolt_build.toolchain import Toolchain, probe

_LONGEST_LOG = 1 << 20


def run_job(job: Job) -> Answer:
    """Run a job. Raises OSError where this machine cannot (a full disk): another one may."""
    began = time.monotonic()
    if package_digest() != job.package:
        return Answer(-1, refused="has another bolt-build")
    chain = _tools(tuple(name for name, _ in job.tools))
    for name, digest in job.tools:
        if chain.tool(name).digest != digest:
            return Answer(-1, refused=f"has {'no' if chain.tool(name).path is None else 'another'} {name}")
    with scratch_folder() as folder:
        directory, out = folder / "work", folder / "out"
        directory.mkdir()
        for file in job.files:
            path = directory / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        for name in job.outputs:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        inside = {name: str(PACKAGE / path) for name, path in job.inside}
        own = {"directory": str(directory), "python": sys.executable, "package": str(PACKAGE)}
        places = Places(tuple((own | inside | tool_places(chain.tools)).items()))
        argv = [places.expand(argument, out=str(out)) for argument in job.argv]
        log = folder / "log"
        with log.open("wb") as writing:
            status = _groups().run(argv, directory, task_environment(os.environ), writing)
        said = log.read_bytes()[-_LONGEST_LOG:].replace(f"{directory}/".encode(), b"")
        there = all((out / name).is_file() for name in job.outputs)
        made = tuple(SentFile(name, (out / name).read_bytes()) for name in job.outputs) if there else ()
        return Answer(status, said, made if status == 0 else (), seconds=time.monotonic() - began)


@functools.cache
def _tools(names: tuple[str, ...]) -> Toolchain:
    return probe(names)


@functools.cache
def _groups() -> ProcessGroups:
    """What ends the compilers of this worker when it ends, however that happens."""
    return ProcessGroups()
