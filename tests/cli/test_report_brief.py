"""What tables say in a terminal instead of the whole text of a kernel or a problem."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.families.base import Candidate
from bolt_build.report.brief import kernel_name, wrapped
from bolt_build.report.tables import Column, table

LOCKS = sorted((Path(__file__).parents[2] / "recipes").glob("*.lock"))


def test_a_kernel() -> None:
    """m, n and k are one word; a word needs no name, a letter does."""
    tile = (("m", 128), ("n", 64), ("k", 64), ("warpgroups", "pingpong"), ("cluster", "2x1"))
    name = kernel_name(Candidate("cutlass", tile, (("along", "n"), ("slices", 4))))
    assert name == "cutlass m=128 n=64 k=64 warpgroups=pingpong cluster=2x1 along=n slices=4"
    assert name.shorter == (
        "cutlass 128x64x64 pingpong cluster=2x1 along=n slices=4", "128x64x64 pingpong cluster=2x1 along=n slices=4",
    )  # fmt: skip
    assert kernel_name(Candidate("cutlass", (("rows", 4), ("n1", 256), ("resident", "turns")))).shorter == (
        "cutlass rows=4 n1=256 turns", "rows=4 n1=256 turns"
    )  # fmt: skip
    assert kernel_name(Candidate("plain")).shorter == ("plain", "plain")


def test_kernels_stay_different() -> None:
    """All that the locks of the recipes name: no two of them are called alike."""
    found = set()
    for path in LOCKS:
        for target in yaml.load(path.read_text(), yaml.CSafeLoader)["targets"].values():
            for entry in target["problems"].values():
                for each in (entry["winner"], entry.get("runner_up")):
                    if each is not None:
                        parts = (tuple(each.get(name, {}).items()) for name in ("parameters", "settings"))
                        found.add(Candidate(each["family"], *parts))
    assert len(found) > 100
    assert len({kernel_name(each).shorter[0] for each in found}) == len(found)


def test_a_column_has_one_form_where_one_fits_all() -> None:
    columns = (Column("kernel", name=True),)
    more = ("warpgroups", "pingpong"), ("cluster", "1x2")
    kernels = [(kernel_name(Candidate("cutlass", (("m", 64), ("n", n), ("k", 64), *more))),) for n in (64, 128)]
    assert [line.plain for line in table(columns, kernels, 40)][1:] == [
        "cutlass 64x64x64 pingpong cluster=1x2", "cutlass 64x128x64 pingpong cluster=1x2",
    ]  # fmt: skip
    long = kernel_name(Candidate("portable", (("algorithm", "direct" * 9),)))
    mixed = [line.plain for line in table(columns, [*kernels, (long,)], 40)][1:]
    assert mixed[:2] == ["cutlass 64x64x64 pingpong cluster=1x2", "cutlass 64x128x64 pingpong cluster=1x2"]
    assert len(mixed[2]) <= 40


@given(st.lists(st.text("abc /=", max_size=200)), st.integers(60, 120))
def test_prose_fits_and_keeps_its_words(lines: list[str], width: int) -> None:
    lines = [" ".join(word[:40] for word in line.split()) for line in lines]
    found = wrapped(lines, width)
    assert all(len(line) <= width for line in found)
    assert " ".join(found).split() == " ".join(lines).split()
    assert wrapped(lines, None) == lines
