"""Runs of SCons for a tuning: plan file, tasks, records and cache as of a build, in a directory of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.build.builder import BuildOptions, Listener
from bolt_build.build.files import FileStamp, stamp, told, unlink, write_text
from bolt_build.build.layout import RecipeDirectory, TuningDirectory
from bolt_build.build.own_code.facts import Facts, versioned
from bolt_build.build.own_code.own_sources import PACKAGE
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.plan_file import PLAN_FILE_VERSION, Places, PlanFile, load_plan_file, save_plan_file
from bolt_build.build.planning.task_graph import places_of
from bolt_build.build.running.session import SessionPart, SessionResult, run_session
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.build.staleness.staleness import forecast
from bolt_build.build.tasks import TaskGraph


@dataclass(frozen=True)
class TuningSession:
    """Tasks of one target's tuning. `places` are folders that its tasks name beside those of a build, `claim` the
    descriptor of the recipe's claimed directory."""

    context: BuildContext
    root: RecipeDirectory
    options: BuildOptions
    claim: int
    listener: Listener
    places: tuple[tuple[str, str], ...] = ()

    @property
    def directory(self) -> TuningDirectory:
        return self.root.tuning(self.context.target.name)

    def run(self, graph: TaskGraph, sources: Sequence[tuple[str, str]] | None, *, keep_going: bool) -> SessionResult:
        """Write `sources` (path, text) and the plan, and run its tasks. Raises BoltError where they cannot be written.

        What an earlier plan of this directory wrote and this one does not is removed; it stays where `sources` is None.
        """
        with told(self.directory.path):
            plan = self._write(graph, sources)
            found = forecast(plan, self.directory, self.options.local_cache, {}, self.context.recipe.mark)
        self.listener.start(Outlook((self.context.recipe.name,), len(found.stale)))
        cache = self.options.local_cache
        name = self.directory.path.name
        try:
            with self.options.session(keep_going=keep_going) as options:
                result = run_session([SessionPart(self.root.path, (name,), self.claim)], options, self.listener.event)
        finally:
            self.listener.stop()
        if any(not event.cached for event in result.finished):
            cache.prune()
        return result

    def _write(self, graph: TaskGraph, sources: Sequence[tuple[str, str]] | None) -> PlanFile:
        """As for a build, `plan.json` goes first and comes last: while it is there the sources are its own."""
        directory = self.directory
        before = load_plan_file(directory.plan)
        known = () if before is None else before.made
        directory.path.mkdir(parents=True, exist_ok=True)
        unlink(directory.plan)
        made = known if sources is None else self._write_sources(dict(sources), [file.path for file in known])
        places = places_of(self.context, directory.path, sys.executable, PACKAGE) | dict(self.places)
        plan = PlanFile(
            PLAN_FILE_VERSION, "tuning", "tuning", self._facts(), Places(tuple(places.items())), (),
            self.context.engine, graph, made,
        )  # fmt: skip
        save_plan_file(directory.plan, plan)
        return plan

    def _write_sources(self, sources: Mapping[str, str], known: Sequence[str]) -> tuple[FileStamp, ...]:
        for name in known:
            if name not in sources:
                unlink(self.directory.path / name)
        made = []
        for name, text in sources.items():
            path = self.directory.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != text.encode():
                write_text(path, text)
            made.append(stamp(path, name))
        return tuple(made)

    def _facts(self) -> Facts:
        return Facts(tools=tuple(versioned(tool.name, tool.version, tool.digest) for tool in self.context.tools))
