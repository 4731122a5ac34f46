"""`bolt-build cache`: what lies in the local cache, or in a team's store; whether it is sound; and making room."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bolt_build.build.builder import BuildOptions
from bolt_build.build.caching.cache_contents import Fault, LocalShelf, SharedShelf, Shelf, faults, prune
from bolt_build.build.caching.cache_folders import BLOBS, ENTRIES
from bolt_build.build.files import told
from bolt_build.build.sharing.store import StoreTrouble, check_place, open_store, shown
from bolt_build.cli.cache_arguments import named, size
from bolt_build.cli.common_arguments import add_cache, add_format, one_of
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.tables import byte_text
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.schema.user_settings import read_settings, settings_file
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.shared_records import Log

_WORDS = {ENTRIES: "finished tasks", BLOBS: "their contents", **{log.value: "measurements" for log in Log}}
_RECORDS = "tuning/records.sqlite"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", **one_of("stats", "verify", "prune"),
        help="how much lies there; whether it is what it says, and remove what is not; remove what was used least "
        "recently",
    )  # fmt: skip
    parser.add_argument("--keep", type=size, metavar="SIZE", help="what prune leaves, such as 20GB")
    add_cache(parser)
    parser.add_argument(
        "--shared-cache", type=named, metavar="URL", help="this store of a team in place of the local cache"
    )
    parser.add_argument("--shared-cache-write", action="store_true", help="verify and prune may remove objects of it")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 5 where something is not what it says. Raises BoltError."""
    if (args.keep is not None) != (args.what == "prune"):
        message = "prune wants to know how much to leave" if args.keep is None else "--keep is for prune"
        hint = "bolt-build cache prune --keep 20GB"
        raise BoltError([Diagnostic("wrong-arguments", message, hint=hint)], ExitCode.USAGE)
    with _shelf(args) as (shelf, name):
        if args.what == "stats":
            return _stats(shelf, name, args)
        if args.what == "verify":
            return _verify(shelf, name, args)
        return _prune(shelf, name, args)


@contextmanager
def _shelf(args: argparse.Namespace) -> Iterator[tuple[Shelf, str]]:
    """The cache that is meant, and its name. What goes wrong with it inside becomes a BoltError."""
    if args.shared_cache is None:
        cache = BuildOptions(cache=args.cache).local_cache
        with told(cache.directory, "name another place with --cache DIR"):
            yield LocalShelf(cache), str(cache.directory)
        return
    timeout = SharedPlace(args.shared_cache).timeout
    if (own := read_settings(settings_file()).shared) is not None:
        timeout = own.timeout
    place = SharedPlace(args.shared_cache, args.shared_cache_write, timeout)
    check_place(place)
    if args.what == "prune" and not place.write:
        message = "pruning a team's store removes what others use"
        hint = "say --shared-cache-write too"
        raise BoltError([Diagnostic("not-a-writer", message, hint=hint)], ExitCode.USAGE)
    folders = (ENTRIES, BLOBS, *(log.value for log in Log)) if args.what == "stats" else (ENTRIES, BLOBS)
    try:
        yield SharedShelf(open_store(place), folders), shown(place.url)
    except StoreTrouble as trouble:
        message = f"the shared cache {shown(place.url)} {trouble}"
        hint = "listing needs a directory, a bucket or WebDAV; its own tools may do it"
        raise BoltError([Diagnostic("shared-cache-trouble", message, hint=hint)], ExitCode.TASK_FAILED) from trouble


def _stats(shelf: Shelf, name: str, args: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for kept in shelf.all():
        counts[_WORDS.get(kept.kind, kept.kind)] += 1
        sizes[_WORDS.get(kept.kind, kept.kind)] += kept.size
    if isinstance(shelf, LocalShelf):
        records = shelf.cache.directory / _RECORDS
        if records.is_file():
            counts["measurements"], sizes["measurements"] = 1, records.stat().st_size
    if args.format == "json":
        kinds = {kind: {"objects": counts[kind], "bytes": sizes[kind]} for kind in counts}
        _write({"cache": name, "kinds": kinds, "bytes": sum(sizes.values())})
        return int(ExitCode.OK)
    sys.stdout.write(f"{name}: {byte_text(sum(sizes.values()))}\n")
    for kind in counts:
        sys.stdout.write(f"  {kind:<16} {counts[kind]:>8}  {byte_text(sizes[kind]):>9}\n")
    return int(ExitCode.OK)


def _verify(shelf: Shelf, name: str, args: argparse.Namespace) -> int:
    found = list(faults(shelf))
    removes = isinstance(shelf, LocalShelf) or args.shared_cache_write
    for fault in found if removes else ():
        shelf.remove(fault.kept)
    wrong = [] if not isinstance(shelf, LocalShelf) else _wrong_records(shelf.cache.directory / _RECORDS)
    _say_faults(found, name, args, removes=removes)
    if wrong:
        raise BoltError(wrong, ExitCode.VERIFY_FAILED)
    return int(ExitCode.VERIFY_FAILED if found else ExitCode.OK)


def _wrong_records(path: Path) -> list[Diagnostic]:
    """What is wrong with the measurements, which are never removed."""
    try:
        if path.is_file():
            with Records(path) as records:
                records.all(records.problems())
                records.engines()
    except BoltError as error:
        return list(error.diagnostics)
    return []


def _say_faults(found: list[Fault], name: str, args: argparse.Namespace, *, removes: bool) -> None:
    if args.format == "json":
        wrong = [{"name": each.kept.name, "why": each.why} for each in found]
        _write({"cache": name, "faults": wrong, "removed": removes and bool(found)})
        return
    for each in found:
        sys.stdout.write(f"{each.kept.name} {each.why}{': removed' if removes else ''}\n")
    if not found:
        sys.stdout.write(f"{name}: all that lies there is what it says\n")


def _prune(shelf: Shelf, name: str, args: argparse.Namespace) -> int:
    removed, left = prune(shelf, args.keep)
    if args.format == "json":
        _write({"cache": name, "removed": removed, "bytes": left})
    else:
        sys.stdout.write(f"{name}: removed {removed} objects, {byte_text(left)} are left\n")
    return int(ExitCode.OK)


def _write(data: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
