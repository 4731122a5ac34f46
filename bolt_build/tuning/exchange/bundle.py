"""A bundle: everything that a machine with the GPU needs to measure a tuning set, in one tar file.

It holds the driver program `run`, the compiled kernels `candidates.so`, `bundle.json` (what is measured, and with what
it was compiled), `engines.tsv` (the whole engines that are measured after that) and a README. Nothing of Python is
needed there: `./run` writes `results.jsonl`, which names the bundle by its id. Equal contents give equal bytes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from bolt_build.digest import decode, digest, encode
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.operators import operators
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.schema.values import shorten
from bolt_build.tuning.records.kernel_record import Record
from bolt_build.tuning.trials.tuning_set import ProblemTrials
from bolt_build.user_files import MEBIBYTE, UnfitFile, binary_kind, open_regular, read_regular, size_text

BUNDLE_VERSION = 1

RUN = "run"
CANDIDATES = "candidates.so"
DESCRIPTION = "bundle.json"
README = "README"
RESULTS = "results.jsonl"
ENGINES = "engines.tsv"

LARGEST_DESCRIPTION = 64 * MEBIBYTE
_MOST_MEMBERS = 16
"""Files of a tar file that are looked at for the description: a bundle has five."""

_README = """\
Kernels of {recipe} for {target}, to be measured on that GPU: {problems} problems, {trials} candidates.

    ./run                    measures on every GPU of this machine and writes {results}
    ./run --help             its options
{stages}
It needs the NVIDIA driver and nothing else. Then, where the bundle was made:

    bolt-build tune RECIPE --target {target} --import {results}

Anywhere else keep {description} beside {results}: it says what was measured.
Bundle {id}
"""
_STAGES = """
When every candidate was measured by itself it plays whole engines, with the fastest candidates and with
others in their place. Their steps are those of engines.tsv: where the measurements lead to other steps,
what was found of an engine is left out.
"""


@dataclass(frozen=True)
class Bundle:
    """What was compiled to be measured: `problems` with those of their trials that compiled, `not_compiled` the others.

    `sources` are names and digests of what it was compiled from, so that the id changes with the code. The id is part
    of `candidates.so`, so it cannot be that of the linked files.
    """

    version: int
    recipe: str
    target: str
    tools: TuningTools
    problems: tuple[ProblemTrials, ...]
    not_compiled: tuple[Record, ...]
    sources: tuple[tuple[str, str], ...]

    @cached_property
    def id(self) -> str:
        """Digest of all of it."""
        return digest(self)

    @property
    def trials(self) -> int:
        return sum(len(problem.trials) for problem in self.problems)


def bundle_text(bundle: Bundle) -> str:
    """The text of `bundle.json`: version and id first, so that both can be read whatever follows."""
    data = {"version": bundle.version, "id": bundle.id, "bundle": encode(bundle)}
    return json.dumps(data, indent=1) + "\n"


def read_bundle(path: Path) -> Bundle:
    """The bundle that a `bundle.json`, or a tar file with one, describes.

    Raises BoltError: "bundle-unreadable", "bundle-version" (made by another bolt-build) or "bundle-damaged" (its
    contents are not those that its id stands for).
    """
    data = _data(path)
    version = data.get("version")
    if version != BUNDLE_VERSION:
        stated = shorten(json.dumps(version))
        message = f"{path} is a bundle of version {stated}; this bolt-build reads version {BUNDLE_VERSION}"
        hint = "make it again: bolt-build tune RECIPE --export BUNDLE.tar"
        raise BoltError([Diagnostic("bundle-version", message, hint=hint, subject=str(path))])

    operators()  # they are found by their classes' names once they are imported

    if digest(data.get("bundle")) != data.get("id"):
        raise _damaged(path, "its contents are not those that its id stands for")
    try:
        bundle = decode(Bundle, data.get("bundle"))
    except ValueError as error:
        raise _damaged(path, f"its contents are no bundle ({error})") from error
    if bundle.id != data.get("id"):
        raise _damaged(path, "its contents are not those that its id stands for")
    return bundle


def write_bundle(path: Path, bundle: Bundle, directory: Path, engines: str = "") -> None:
    """Write the tar file: `run` and `candidates.so` of `directory`, the description and the README, and where there are
    whole engines to play (`engines` is the text about them) what says which.

    Owners, times and the order of files are the same everywhere. Written whole or not at all. Raises OSError.
    """
    texts = {DESCRIPTION: bundle_text(bundle), README: _readme(bundle, engines)}
    if engines:
        texts[ENGINES] = engines
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
            for name in sorted((*texts, RUN, CANDIDATES)):
                if name in texts:
                    data = texts[name].encode()
                    archive.addfile(_member(name, len(data)), io.BytesIO(data))
                else:
                    with (directory / name).open("rb") as stream:
                        archive.addfile(_member(name, os.fstat(stream.fileno()).st_size), stream)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o755 if name in (RUN, CANDIDATES) else 0o644
    return member


def _readme(bundle: Bundle, engines: str) -> str:
    return _README.format(
        stages=_STAGES if engines else "",
        recipe=bundle.recipe, target=bundle.target, problems=len(bundle.problems), trials=bundle.trials,
        id=bundle.id, results=RESULTS, description=DESCRIPTION,
    )  # fmt: skip


def _data(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_description(path), parse_constant=_refuse)
    except UnfitFile as error:
        raise _unreadable(path, str(error)) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise _unreadable(path, reason) from error
    except (tarfile.TarError, KeyError) as error:
        raise _unreadable(path, f"there is no whole {DESCRIPTION} in it") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON to its end") from error
    if not isinstance(data, dict):
        raise _damaged(path, "its contents are no bundle")
    return data


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _description(path: Path) -> bytes:
    """The description, from the file itself or from the tar file that it is in.

    Raises OSError, UnfitFile, TarError, and KeyError where the first files of a tar file are not it.
    """
    with open_regular(path) as stream:
        if not _is_tar(stream):
            data = read_regular(path, LARGEST_DESCRIPTION)
            if (kind := binary_kind(data)) is not None:
                raise UnfitFile(path, f"this is {kind}")
            return data
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in itertools.islice(archive, _MOST_MEMBERS):
                if member.name == DESCRIPTION and member.isreg():
                    return _contents(path, archive, member)
    raise KeyError(DESCRIPTION)


def _is_tar(stream: IO[bytes]) -> bool:
    """True for a tar file that is not compressed: what is compressed would have to be unpacked to know it."""
    try:
        with tarfile.open(fileobj=stream, mode="r:"):
            return True
    except tarfile.ReadError:
        return False


def _contents(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST_DESCRIPTION:
        raise UnfitFile(path, f"its {DESCRIPTION} is larger than {size_text(LARGEST_DESCRIPTION)}")
    inside = archive.extractfile(member)
    assert inside is not None, "a regular member has contents"
    return inside.read(LARGEST_DESCRIPTION)


def _unreadable(path: Path, reason: str) -> BoltError:
    return BoltError([Diagnostic("bundle-unreadable", f"cannot read the bundle {path}: {reason}", subject=str(path))])


def _damaged(path: Path, reason: str) -> BoltError:
    hint = "copy it again, or make it again: bolt-build tune RECIPE --export BUNDLE.tar"
    return BoltError([Diagnostic("bundle-damaged", f"the bundle {path} is damaged: {reason}", hint=hint)])
