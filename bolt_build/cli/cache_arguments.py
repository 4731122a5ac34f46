"""Arguments of verbs that take finished tasks from caches, the local one and that of a team, and keep them there."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace

from bolt_build.build.builder import BuildOptions
from bolt_build.build.caching.cache import DEFAULT_LIMIT
from bolt_build.build.sharing.store import check_place, is_in_the_clear, shown
from bolt_build.cli.common_arguments import add_cache
from bolt_build.cli.streams import wants_color
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.schema.user_settings import read_settings, settings_file
from bolt_build.user_files import size_text

_USAGE = ExitCode.USAGE
_NONE = "none"
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip


def add_task_cache(parser: argparse.ArgumentParser, *, may_only_read: bool = False) -> None:
    """`may_only_read`: for verbs that write nothing else into the cache."""
    add_cache(parser)
    parser.add_argument(
        "--cache-limit", type=size, default=DEFAULT_LIMIT, metavar="SIZE",
        help=f"evict what was used least recently beyond this size (default: {size_text(DEFAULT_LIMIT)})",
    )  # fmt: skip
    if may_only_read:
        parser.add_argument(
            "--cache-read-only", action="store_true",
            help="take finished tasks from the cache and change nothing in it; it may be another user's",
        )  # fmt: skip
    add_shared_cache(parser)


def add_shared_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shared-cache", type=named, metavar="URL",
        help="ask this store of a team behind the local cache: a directory, s3://, https:// (default: the user's "
        "settings; 'none' for none)",
    )  # fmt: skip
    parser.add_argument(
        "--shared-cache-write", action="store_true",
        help="also put what is built into it: for those whom the team trusts",
    )  # fmt: skip


def named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def shared_place(args: argparse.Namespace) -> SharedPlace | None:
    """The store that the command line names, or else the user's settings; None where there is none.

    Raises BoltError for what cannot be one, and where the settings are wrong.
    """
    asked = args.shared_cache
    found = None if asked == _NONE else read_settings(settings_file()).shared
    if asked is not None and asked != _NONE:
        found = replace(found or SharedPlace(asked), url=asked, write=False)
    if found is None:
        if args.shared_cache_write:
            hint = "name it with --shared-cache URL, or in your settings"
            raise BoltError([Diagnostic("no-shared-cache", "there is no shared cache to write", hint=hint)], _USAGE)
        return None
    check_place(found)
    if is_in_the_clear(found):
        message = f"{shown(found.url)} is not encrypted: whoever is on the way to it can put code into engines"
        warning = Diagnostic("in-the-clear", message, hint="use https://", severity="warning")
        sys.stderr.write(render([warning], color=wants_color(sys.stderr)))
    return replace(found, write=found.write or args.shared_cache_write)


def with_cache(options: BuildOptions, args: argparse.Namespace) -> BuildOptions:
    """Raises BoltError where the cache has no place, or others can write into it."""
    read_only = getattr(args, "cache_read_only", False)
    found = replace(options, cache=args.cache, cache_limit=args.cache_limit, cache_read_only=read_only)
    found.local_cache.folders.check()
    return replace(found, shared=shared_place(args))


def size(text: str) -> int:
    """A number of bytes, with a unit or without: "500MB", "2GiB"."""
    match = re.fullmatch(r"([0-9]{1,15}) ?([A-Za-z]*)", text, re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no size, such as 500MB or 2GiB")
    return int(match[1]) * unit
