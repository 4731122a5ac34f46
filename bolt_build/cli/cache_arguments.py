"""Arguments of verbs that take finished tasks from the local cache and keep them there."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from bolt_build.build.builder import BuildOptions
from bolt_build.build.cache import DEFAULT_LIMIT
from bolt_build.cli.common_arguments import add_cache
from bolt_build.user_files import size_text

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip


def add_task_cache(parser: argparse.ArgumentParser, *, may_only_read: bool = False) -> None:
    """`may_only_read`: for verbs that write nothing else into the cache."""
    add_cache(parser)
    parser.add_argument(
        "--cache-limit", type=size, default=DEFAULT_LIMIT, metavar="SIZE",
        help=f"what was used least recently goes when the cache is larger (default: {size_text(DEFAULT_LIMIT)})",
    )  # fmt: skip
    if may_only_read:
        parser.add_argument(
            "--cache-read-only", action="store_true",
            help="take finished tasks from the cache and change nothing in it; it may be another user's",
        )  # fmt: skip


def with_cache(options: BuildOptions, args: argparse.Namespace) -> BuildOptions:
    """Raises BoltError where the cache has no place, or others can write into it."""
    read_only = getattr(args, "cache_read_only", False)
    found = replace(options, cache=args.cache, cache_limit=args.cache_limit, cache_read_only=read_only)
    found.local_cache.folders.check()
    return found


def size(text: str) -> int:
    """A number of bytes, with a unit or without: "500MB", "2GiB"."""
    match = re.fullmatch(r"([0-9]{1,15}) ?([A-Za-z]*)", text, re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no size: 500MB or 2GiB, say")
    return int(match[1]) * unit
