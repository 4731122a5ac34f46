"""Bundles, as a description and as a tar file."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from random import Random

from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import shown
from fuzzing.json_mutation import spoiled
from tune_sets import bundle

from bolt_build.digest import digest
from bolt_build.errors import BoltError
from bolt_build.tuning.exchange.bundle import bundle_text, read_bundle

LONG, SHORT = 3000, 60


def case(random: Random) -> Case:
    """Half of the changed ones have the id of their contents: their types must be looked at."""
    text = bundle_text(bundle())
    data = json.loads(text)
    if random.random() < 0.7:
        data["bundle"] = spoiled(random, data["bundle"])
        if random.random() < 0.7:
            data["id"] = digest(data["bundle"])
        description = json.dumps(data).encode()
    elif random.random() < 0.5:
        description = json.dumps(spoiled(random, data)).encode()
    else:
        description = mutated(random, text.encode(), [text.encode(), b"[" * 3000])
    if random.random() < 0.6:
        return Case("a description", (("bundle", description),))
    return Case("a tar file", (("bundle", _tar(random, description)),))


def _tar(random: Random, description: bytes) -> bytes:
    file = io.BytesIO()
    form = random.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    packed = random.randrange(4) == 0
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for _ in range(random.choice((0, 1, 3, 40))):
            archive.addfile(_member(random, f"f{random.randrange(100)}", 5), io.BytesIO(b"12345"))
        archive.addfile(_member(random, "bundle.json", len(description)), io.BytesIO(description))
    data = gzip.compress(file.getvalue(), mtime=0) if packed else file.getvalue()
    return mutated(random, data, [data]) if random.random() < 0.6 else data


def _member(random: Random, name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    if random.random() < 0.1:
        member.type = random.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"9"))
        member.linkname = random.choice((name, "bundle.json", "/etc/passwd"))
        member.size = random.choice((0, size))
    return member


def check(case: Case, folder: Path) -> str:
    """What is taken has the id that it says, and of one id there is one bundle."""
    case.write(folder)
    try:
        found = read_bundle(folder / "bundle")
    except BoltError as error:
        return shown(error.diagnostics)
    if found.id == bundle().id and found != bundle():
        raise Violation("another bundle has the same id")
    if json.loads(bundle_text(found))["id"] != found.id:
        raise Violation("written again it has another id")
    return "taken"
