"""Entries of the local cache: edited, renamed, swapped, led elsewhere. What comes out is what went in under that key,
or nothing; and nothing outside of the cache is touched."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.json_mutation import spoiled

from bolt_build.build.caching.cache import Cache, RefusedEntry
from bolt_build.digest import digest, digest_bytes

LONG, SHORT = 2500, 30

_TRAVERSALS = ("../../victim", "../../../victim", "/victim", "..", ".", "", "a/b", "\0", "\ud800", "x" * 300)
_SPARSE = 1 << 30


def case(random: Random) -> Case:
    names = [random.choice(tuple(_TAMPERINGS)) for _ in range(random.choice((1, 1, 2, 3, 5)))]
    return Case(", ".join(names), (), (str(random.getrandbits(64)), *names))


def check(case: Case, folder: Path) -> str:
    """Everything is fetched, stored again, fetched again and pruned."""
    random = Random(case.arguments[0])
    place = _Place.filled(random, folder)
    outside = _state(folder, place.cache.directory)
    for name in case.arguments[1:]:
        _TAMPERINGS[name](place, random)
    found = [place.fetched(key, f"first-{number}") for number, key in enumerate(place.made)]
    for key in place.made:
        place.stored(key)
    found += [place.fetched(key, f"second-{number}") for number, key in enumerate(place.made)]
    place.cache.prune(random.choice((0, 0, 200)))
    if _state(folder, place.cache.directory) != outside:
        raise Violation("something outside of the cache was changed")
    return "refused" if "refused" in found else "missed" if "missed" in found else "delivered"


@dataclass
class _Place:
    """A cache, and what went into it: contents by output by key."""

    cache: Cache
    made: dict[str, dict[str, bytes]]
    sources: Path
    fetches: Path
    outside: Path

    @classmethod
    def filled(cls, random: Random, folder: Path) -> _Place:
        """Beside the cache lies what nobody may touch: a file by name, and a folder of files called as blobs are."""
        (folder / "victim").write_text("mine")
        outside = folder / "outside"
        made: dict[str, dict[str, bytes]] = {}
        for number in range(random.randint(2, 4)):
            names = random.sample(("kernel.o", "src/plan.cpp", "libnet.so"), random.randint(1, 2))
            contents = {name: random.randbytes(random.choice((0, 5, 300))) for name in names}
            made[digest_bytes(b"key %d" % number)] = contents
        place = cls(Cache(folder / "cache"), made, folder / "cache" / "sources", folder / "cache" / "to", outside)
        for key in made:
            place.stored(key)
        for contents in made.values():
            for data in contents.values():
                name = digest_bytes(data)
                for path in (outside / name, outside / name[:2] / name):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(b"mine")
        return place

    def stored(self, key: str) -> None:
        outputs = []
        for name, data in self.made[key].items():
            path = self.sources / digest_bytes(key.encode() + name.encode())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            outputs.append((name, path, digest_bytes(data)))
        try:
            self.cache.store(key, outputs)
        except OSError:
            return  # told as such by whoever stores

    def fetched(self, key: str, into: str) -> str:
        to, names = self.fetches / into, list(self.made[key])
        seen = self.cache.lookup(key, names)
        digests = {name: digest_bytes(data) for name, data in self.made[key].items()}
        if seen is not None and {output.name: output.digest for output in seen} != digests:
            raise Violation(f"another entry is promised for {key}: {seen}")
        try:
            taken = self.cache.fetch(key, names, to)
        except RefusedEntry:
            return "refused"
        if not taken:
            return "missed"
        there = {str(path.relative_to(to)): path.read_bytes() for path in to.rglob("*") if path.is_file()}
        if there != self.made[key]:
            raise Violation(f"delivered for {key}: {sorted(there)}, not what was stored")
        return "delivered"

    def entry(self, random: Random) -> Path:
        key = random.choice(sorted(self.made))
        return self.cache.directory / "entries" / key[:2] / f"{key}.json"

    def blob(self, random: Random) -> Path:
        data = random.choice([data for contents in self.made.values() for data in contents.values()])
        name = digest_bytes(data)
        return self.cache.directory / "blobs" / name[:2] / name

    def either(self, random: Random) -> Path:
        return random.choice((self.entry, self.blob))(random)

    def data(self, path: Path) -> Any:
        """An entry's JSON; of one that was tampered with before, what an entry could hold."""
        try:
            return json.loads(path.read_bytes() if self.is_small(path) else b"")
        except ValueError:
            return {"version": 1, "key": path.stem, "outputs": [], "seal": ""}

    def is_inside(self, path: Path) -> bool:
        """True where the path leads through no link that was put there before."""
        folders = [folder for folder in path.parents if folder.is_relative_to(self.cache.directory)]
        return all(folder.is_dir() and not folder.is_symlink() for folder in folders)

    def is_small(self, path: Path) -> bool:
        """True for a plain file that can be read whole."""
        return self.is_inside(path) and not path.is_symlink() and path.is_file() and path.stat().st_size < _SPARSE

    def replace(self, path: Path, data: bytes) -> None:
        """Puts a plain file there, unless an earlier tampering has put something in the way."""
        if self.is_inside(path) and not (path.is_dir() and not path.is_symlink()):
            path.unlink(missing_ok=True)
            path.write_bytes(data)


def _state(folder: Path, without: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that lies in the folder but below `without`."""
    found = {}
    for path in folder.rglob("*"):
        if not path.is_relative_to(without):
            status = path.lstat()
            contents = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path)] = (status.st_mode, status.st_mtime_ns if contents else 0, contents)
    return found


def _edit(place: _Place, random: Random) -> None:
    """A value of an entry; half of the time under a new seal where what changes is no name that could be another's."""
    path = place.entry(random)
    data = place.data(path)
    outputs = data.get("outputs") if isinstance(data, dict) else None
    if not isinstance(outputs, list) or not outputs or not isinstance(outputs[0], dict):
        return
    output = outputs[0]
    what = random.randrange(5)
    if what == 0:
        output["digest"] = random.choice(_TRAVERSALS)
    elif what == 1:
        output["name"] = random.choice(_TRAVERSALS)
    elif what == 2:
        output["size"] = random.choice((-1, 1 << 62, 10**400, 1.5, "5"))
    elif what == 3:
        data["key"] = random.choice(sorted(place.made))
    else:
        data["version"] = random.choice((0, 2, True, "1", 1.0, None))
    if random.random() < 0.5:
        data["seal"] = digest({name: value for name, value in data.items() if name != "seal"})
    place.replace(path, json.dumps(data).encode())


def _point_elsewhere(place: _Place, random: Random) -> None:
    """To other contents, which the cache holds; who can make a new seal has made an entry of their own."""
    path, other = place.entry(random), place.blob(random)
    data = place.data(path)
    outputs = data.get("outputs") if isinstance(data, dict) else None
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            output["digest"] = other.name
            output["size"] = len(other.read_bytes()) if place.is_small(other) else 0
    place.replace(path, json.dumps(data).encode())


def _swap(place: _Place, random: Random) -> None:
    pick = random.choice((place.entry, place.blob))
    first, second = pick(random), pick(random)
    if place.is_small(first) and place.is_small(second) and first != second:
        held, other = first.read_bytes(), second.read_bytes()
        place.replace(first, other)
        place.replace(second, held)


def _rename(place: _Place, random: Random) -> None:
    first, second = place.entry(random), place.entry(random)
    if place.is_small(first) and first != second:
        place.replace(second, first.read_bytes())
        if random.random() < 0.5:
            first.unlink()


def _spoil(place: _Place, random: Random) -> None:
    path = place.entry(random)
    place.replace(path, json.dumps(spoiled(random, place.data(path))).encode())


def _bytes(place: _Place, random: Random) -> None:
    path = place.either(random)
    if place.is_small(path):
        place.replace(path, mutated(random, path.read_bytes(), [b"{}", b"other"]))


def _same_size(place: _Place, random: Random) -> None:
    path = place.blob(random)
    if place.is_small(path):
        place.replace(path, random.randbytes(path.stat().st_size))


def _other_kind(place: _Place, random: Random) -> None:
    """A link, a pipe, a folder, or a file with a size that nothing holds."""
    path = place.either(random)
    if not place.is_inside(path) or (path.is_dir() and not path.is_symlink()):
        return
    path.unlink(missing_ok=True)
    kind = random.randrange(5)
    if kind == 0:
        victim = place.outside.parent / "victim"
        path.symlink_to(random.choice((place.outside / path.name, victim, Path("/dev/zero"), path)))
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        with path.open("wb") as file:
            file.truncate(_SPARSE)
    else:
        os.link(place.outside.parent / "victim", path)


def _folder_elsewhere(place: _Place, random: Random) -> None:
    """A folder of the cache becomes a link to one outside that has files of the same names, or no folder at all."""
    path = random.choice((place.either(random).parent, place.either(random).parent.parent))
    if place.is_inside(path / "file"):
        path.rename(path.with_name(f"gone-{random.getrandbits(32)}"))
        if random.random() < 0.8:
            path.symlink_to(place.outside)
        else:
            path.write_bytes(b"a file")


def _open_to_others(place: _Place, random: Random) -> None:
    path = place.either(random)
    path = random.choice((path, path.parent, path.parent.parent, place.cache.directory))
    if place.is_inside(path) and path.exists() and not path.is_symlink():
        path.chmod(random.choice((0o666, 0o777, 0o664, 0o770, 0o1777)))


def _litter(place: _Place, random: Random) -> None:
    for name in (f".{'a' * 64}.json.12.tmp", "thesis.txt", "b" * 64, "-rf", "\udcff.json"):
        path = place.either(random).parent / name
        if place.is_inside(path) and not path.exists():
            path.write_bytes(b"x" * random.choice((0, 1000)))


_TAMPERINGS: dict[str, Callable[[_Place, Random], None]] = {
    "an entry edited": _edit, "an entry that points elsewhere": _point_elsewhere, "two swapped": _swap,
    "an entry renamed": _rename, "an entry spoiled": _spoil, "bytes changed": _bytes,
    "other contents of the same size": _same_size, "another kind of file": _other_kind,
    "a folder that leads elsewhere": _folder_elsewhere, "open to others": _open_to_others, "litter": _litter,
}  # fmt: skip
