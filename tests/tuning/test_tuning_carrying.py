"""Which measurements hold after an edit of headers: those of kernels that do not include what was edited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_evidence import TABLE, played
from tune_sets import FIRST, LARGE, SECOND, SMALL
from tuning_evidence import H200, TOOLS, ok

from bolt_build.build.own_code.own_sources import OwnSources
from bolt_build.build.own_code.source_files import SourceFiles
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.targets import target_named
from bolt_build.toolchain import Toolchain
from bolt_build.tuning.compile import tools as compile_tools
from bolt_build.tuning.compile.tools import tuning_tools
from bolt_build.tuning.records.carrying import carried, carried_engines
from bolt_build.tuning.records.database import Records

PLAIN = Candidate("portable", (("algorithm", "direct"),))
BEFORE = replace(TOOLS, kernels="1" * 64, families=(("cutlass", "c1"), ("portable", "p1")))
NOW = replace(TOOLS, kernels="2" * 64, families=(("cutlass", "c1"), ("portable", "p2")))
THEN, HERE = Fingerprint(H200, BEFORE), Fingerprint(H200, NOW)
ONE, TWO = FIRST.problem.digest, SECOND.problem.digest


def test_what_was_measured_of_a_family_holds_while_its_own_headers_do() -> None:
    cutlass, portable = ok(ONE, SMALL, 3.0), ok(TWO, PLAIN, 5.0)
    found = ((THEN, cutlass), (THEN, portable))
    assert carried(found, NOW) == (*found, (HERE, cutlass))


def test_what_was_measured_again_stands_alone() -> None:
    found = ((THEN, ok(ONE, SMALL, 3.0)), (THEN, ok(ONE, LARGE, 4.0)), (HERE, ok(ONE, SMALL, 3.1)))
    assert carried(found, NOW) == (*found, (HERE, ok(ONE, LARGE, 4.0)))


@pytest.mark.parametrize(
    "then",
    [
        replace(BEFORE, cuda="12.9"), replace(BEFORE, cutlass="4.1.0.0"), replace(BEFORE, flags="-O1"),
        replace(BEFORE, families=(("portable", "p2"),)), replace(BEFORE, families=()),
    ],
    ids=["another compiler", "another CUTLASS", "other flags", "another family alone", "nobody told headers apart"],
)  # fmt: skip
def test_nothing_else_holds(then: TuningTools) -> None:
    found = ((replace(THEN, tools=then), ok(ONE, SMALL, 3.0)),)
    assert carried(found, NOW) == found


def test_a_whole_engine_holds_while_the_headers_of_all_its_kernels_do() -> None:
    alike = played({ONE: SMALL, TWO: SMALL}, {})
    mixed = played({ONE: SMALL, TWO: PLAIN}, {})
    swapped = played({ONE: SMALL, TWO: SMALL}, {TWO: PLAIN})
    assert alike.table == TABLE.digest
    found = tuple((THEN, record) for record in (alike, mixed, swapped))
    assert carried_engines(found, NOW) == (*found, (HERE, alike))


def test_records_of_before_learn_which_headers_each_family_had(tmp_path: Path) -> None:
    """The first tuning with the headers that they were made with says so; their digest stays."""
    path = tmp_path / "records.sqlite"
    silent = replace(THEN, tools=replace(BEFORE, families=()))
    assert (silent, silent.digest) == (THEN, THEN.digest)
    with Records(path) as records:
        records.merge(silent, [ok(ONE, SMALL, 3.0)])
        records.tell_apart(NOW)
        assert carried(records.all([ONE]), NOW) == ((silent, ok(ONE, SMALL, 3.0)),)
        records.tell_apart(BEFORE)
        assert [each.digest for each, _ in carried(records.all([ONE]), NOW)] == [THEN.digest, HERE.digest]


def test_a_family_counts_what_its_kernels_include(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of the portable kernels that CUTLASS's include is theirs too; one that they do not include is not."""
    target = target_named("h200")

    def families(edited: str) -> dict[str, str]:
        own = Edited(edited)
        monkeypatch.setattr(compile_tools, "header_digest", own.header_digest)
        found = tuning_tools(target, load(target), Toolchain(()))
        return dict(found.families)

    before = families("")
    changed = {
        name: {family for family, digest in families(name).items() if digest != before[family]}
        for name in ("bolt_portable/gather.h", "bolt_portable/cuda/launch.h", "bolt_cutlass/units/conv_pooled_kernel.h")
    }
    assert changed["bolt_portable/gather.h"] == {"portable"}
    assert changed["bolt_portable/cuda/launch.h"] >= {"portable", "cutlass"}
    assert changed["bolt_cutlass/units/conv_pooled_kernel.h"] == {"cutlass"}


class Edited(OwnSources):
    """The sources, with one header as if it had been edited."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(compile_tools.__file__).parents[2], EditedFiles(name), ())


class EditedFiles(SourceFiles):
    def __init__(self, name: str) -> None:
        super().__init__(None)
        self.edited = name

    def of(self, path: Path, module: str = ""):  # type: ignore[no-untyped-def]
        found = super().of(path, module)
        return replace(found, digest="0" * 64) if self.edited and str(path).endswith(self.edited) else found
