"""What was found of one tool, and of all that were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bolt_build.digest import digest
from bolt_build.errors import Diagnostic


@dataclass(frozen=True)
class Tool:
    """A tool that was looked for.

    `path` is the program or the main file, `libraries` the shared libraries that an engine needs beside it. `digest`
    changes when the tool does, and is the same for the same tool in another place. Where the tool cannot be used,
    `problem` says why and `mend` is a command that helps.
    """

    name: str
    path: str | None
    version: str
    digest: str
    include_dirs: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    problem: str | None = None
    mend: str | None = None


@dataclass(frozen=True)
class Toolchain:
    """Every tool that was asked for, usable or not, in the order of asking."""

    tools: tuple[Tool, ...]

    @cached_property
    def digest(self) -> str:
        """One digest of all the tools."""
        return digest([[tool.name, tool.digest] for tool in self.tools])

    @property
    def missing(self) -> tuple[Tool, ...]:
        """The tools that cannot be used."""
        return tuple(tool for tool in self.tools if tool.problem is not None)

    def tool(self, name: str) -> Tool:
        """The tool called `name`. Raises KeyError where it was not asked for."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        raise KeyError(name)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """One "missing-tool" for each tool that cannot be used."""
        return tuple(
            Diagnostic("missing-tool", str(tool.problem), hint=tool.mend, subject=tool.name) for tool in self.missing
        )


def missing(name: str, problem: str, mend: str | None) -> Tool:
    """A tool that cannot be used."""
    return Tool(name, None, "", "", problem=problem, mend=mend)
