"""`bolt-build doctor`: what was found for building, what is missing, and the command that mends it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bolt_build.cli.common_arguments import add_format, add_recipes, read_recipes
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.tables import Column, table
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import Target, sound_targets
from bolt_build.toolchain import Tool, Toolchain, probe
from bolt_build.toolchain.trial import try_cxx
from bolt_build.wording import suggest
from bolt_build.workflows.packages import InstalledPackage, installed_packages

VERIFIER = "onnxruntime"
"""What verification needs beside the targets' own tools."""


@dataclass(frozen=True)
class Examination:
    """Every tool that some target or verification needs, and the targets with the tools that each lacks."""

    toolchain: Toolchain
    targets: tuple[tuple[Target, tuple[str, ...]], ...]
    packages: tuple[InstalledPackage, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipes(parser, needed=False, what=": look only for what their targets need")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="only this target (repeatable)")
    parser.add_argument("--targets", action="store_true", help="list the targets, and which of them can be built here")
    add_format(parser, "report")


def run(args: argparse.Namespace) -> int:
    """Exit code 7 where a tool is missing that a target, or its verification, needs, or where something that an
    installed package adds cannot be used. Raises BoltError."""
    found = replace(examine(_asked(read_recipes(args), args.target)), packages=installed_packages())
    if args.format == "json":
        sys.stdout.write(json.dumps(_data(found), indent=2) + "\n")
    elif args.targets:
        _show_targets(found)
    else:
        _show_tools(found)
        _show_packages(found.packages)
    broken = any(package.problems for package in found.packages)
    return int(ExitCode.TOOL_MISSING if found.toolchain.missing or broken else ExitCode.OK)


def _asked(recipes: Sequence[Recipe], names: Sequence[str]) -> tuple[Target, ...]:
    """The targets of the recipes, of all that are known where there are none; those of `names` alone, if any.

    Raises BoltError ("unknown-target") for a name that is not among them.
    """
    of_recipes = {spec.name for recipe in recipes for spec in recipe.targets}
    targets = [target for target in sound_targets() if not recipes or target.name in of_recipes]
    known = [target.name for target in targets]
    wrong = [
        Diagnostic(
            "unknown-target",
            f"there is no target '{name}'",
            hint=suggest(name, known) or f"there are: {', '.join(known)}",
        )
        for name in dict.fromkeys(names)
        if name not in known
    ]
    if wrong:
        raise BoltError(wrong, ExitCode.USAGE)
    return tuple(target for target in targets if not names or target.name in names)


def examine(targets: tuple[Target, ...]) -> Examination:
    """Probe the tools of `targets`; the C++ compiler also has to make a program."""
    names = dict.fromkeys(name for target in targets for name in target.tools)
    tools = tuple(_tried(tool) for tool in probe((*names, VERIFIER)).tools)
    broken = {tool.name for tool in tools if tool.problem is not None}
    lacking = tuple((target, tuple(name for name in target.tools if name in broken)) for target in targets)
    return Examination(Toolchain(tools), lacking)


def _tried(tool: Tool) -> Tool:
    if tool.name != "cxx" or tool.problem is not None:
        return tool
    problem = try_cxx(tool)
    return tool if problem is None else replace(tool, problem=problem, mend="apt-get install g++")


def _needed_by(name: str, found: Examination) -> str:
    users = [target.name for target, _ in found.targets if name in target.tools]
    return ", ".join([*users, "verify"] if name == VERIFIER else users)


def _show_tools(found: Examination) -> None:
    tools = found.toolchain.tools
    rows = [
        (tool.name, tool.version or "-", _needed_by(tool.name, found), "missing" if tool.problem else str(tool.path))
        for tool in tools
    ]
    _print_table(("tool", "version", "needed by", "where"), rows)
    for tool in found.toolchain.missing:
        sys.stdout.write(f"\n{tool.name}: {tool.problem}\n")
        if tool.mend is not None:
            sys.stdout.write(f"  {tool.mend}\n")


def _show_packages(packages: Sequence[InstalledPackage]) -> None:
    """What installed packages add; nothing where none does."""
    if not packages:
        return
    sys.stdout.write("\n")
    rows = [
        (package.name, package.version, what)
        for package in packages
        for what in (*package.adds, *(f"{len(package.problems)} that cannot be used" for _ in package.problems[:1]))
    ]
    _print_table(("package", "version", "adds"), rows)
    for problem in (problem for package in packages for problem in package.problems):
        sys.stdout.write(f"\n{problem.subject}: {problem.message}\n  {problem.hint}\n")


def _show_targets(found: Examination) -> None:
    rows = [
        (
            target.name,
            ", ".join(target.precisions),
            f"no: {', '.join(lacks)} missing" if lacks else "yes",
            target.description,
        )
        for target, lacks in found.targets
    ]
    _print_table(("target", "precisions", "builds here", "description"), rows)
    if found.toolchain.missing:
        sys.stdout.write("\n'bolt-build doctor' says how to install what is missing.\n")


def _print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    # Whole paths, which can be copied: a terminal that is too narrow wraps them by itself.
    lines = table([Column(title) for title in columns], rows, None)
    sys.stdout.write("".join(f"{line.plain}\n" for line in lines))


def _data(found: Examination) -> dict[str, Any]:
    return {
        "version": 1,
        "tools": [
            {
                "name": tool.name,
                "version": tool.version or None,
                "path": tool.path,
                "digest": tool.digest or None,
                "problem": tool.problem,
                "mend": tool.mend,
            }
            for tool in found.toolchain.tools
        ],
        "targets": [
            {
                "name": target.name,
                "description": target.description,
                "precisions": list(target.precisions),
                "builds_here": not lacks,
                "missing": list(lacks),
            }
            for target, lacks in found.targets
        ],
        "packages": [
            {
                "name": package.name,
                "version": package.version,
                "adds": list(package.adds),
                "problems": [
                    {"code": each.code, "message": each.message, "hint": each.hint} for each in package.problems
                ],
            }
            for package in found.packages
        ],
    }
