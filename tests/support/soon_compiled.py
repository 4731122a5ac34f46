"""`with emitted_soon_compiled():` engines that are built in this process, and are only asked what they compute: what is
emitted for them is compiled with -O0, in half the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from bolt_build.build.planning import compiles
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.tasks import Task


@contextmanager
def emitted_soon_compiled() -> Iterator[None]:
    """The runtime and the families' own files keep their flags: all builds of a run share their objects."""
    with_its_flags = compiles._emitted

    def soon_compiled(context: BuildContext, emitted: Sequence[str]) -> list[Task]:
        return [replace(task, argv=(*task.argv, "-O0")) for task in with_its_flags(context, emitted)]

    with mock.patch.object(compiles, "_emitted", soon_compiled):
        yield
