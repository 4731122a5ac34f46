"""What tables say in a terminal instead of the whole text of a kernel or a problem."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.report.brief import brief_kernel, brief_words, wrapped
from bolt_build.report.tables import Column, table

LOCKS = sorted((Path(__file__).parents[1] / "recipes").glob("*.lock"))


def test_a_kernel() -> None:
    """m, n and k are one word; a word needs no name, a letter does."""
    assert brief_kernel("cutlass m=128 n=64 k=64 warpgroups=pingpong cluster=2x1 along=n slices=4") == (
        "cutlass 128x64x64 pingpong cluster=2x1 along=n slices=4", "128x64x64 pingpong cluster=2x1 along=n slices=4",
    )  # fmt: skip
    assert brief_kernel("cutlass rows=4 n1=256 resident=turns") == (
        "cutlass rows=4 n1=256 turns", "rows=4 n1=256 turns"
    )  # fmt: skip
    assert brief_kernel("view") == ("view", "view")


def test_kernels_stay_different() -> None:
    """All that the locks of the recipes name: no two of them are called alike."""
    found = set()
    for path in LOCKS:
        for target in yaml.load(path.read_text(), yaml.CSafeLoader)["targets"].values():
            for entry in target["problems"].values():
                for each in (entry["winner"], entry.get("runner_up")):
                    if each is not None:
                        values = {**each.get("parameters", {}), **each.get("settings", {})}
                        words = (f"{name}={value}" for name, value in values.items())
                        found.add(" ".join((each["family"], *words)))
    assert len(found) > 100
    assert len({brief_kernel(each)[0] for each in found}) == len(found)


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        (
            "3x3 convolution / 2, 64 to 128 channels, 56x56 to 28x28, batch 32 + bias + residual + relu",
            ("3x3 conv/2 64>128 56x56>28x28+res+relu", "3x3 conv/2 64>128 56x56>28x28", "3x3 conv/2 64>128"),
        ),
        (
            "7x7 convolution, 3 to 64 channels, 9x9, batch 1 + relu then 3x3 max pooling / 2, 64 channels, 9x9 to 5x5",
            (
                "7x7 conv 3>64 9x9+relu | 3x3 maxpool/2 64 9x9>5x5", "7x7 conv 3>64 9x9 | 3x3 maxpool/2 64 9x9>5x5",
                "7x7 conv 3>64 | 3x3 maxpool/2 64",
            ),
        ),
        ("32x2048 by 2048x1000 + bias", ("32x2048 by 2048x1000",) * 3),
    ],
)  # fmt: skip
def test_a_problem(text: str, forms: tuple[str, ...]) -> None:
    assert brief_words(text) == forms


def test_a_column_has_one_form_where_one_fits_all() -> None:
    columns = (Column("kernel", name=True, brief=brief_kernel),)
    kernels = [(f"cutlass m=64 n={n} k=64 warpgroups=pingpong cluster=1x2",) for n in (64, 128)]
    assert [line.plain for line in table(columns, kernels, 40)][1:] == [
        "cutlass 64x64x64 pingpong cluster=1x2", "cutlass 64x128x64 pingpong cluster=1x2",
    ]  # fmt: skip
    mixed = [line.plain for line in table(columns, [*kernels, ("portable algorithm=" + "direct" * 9,)], 40)][1:]
    assert mixed[:2] == ["cutlass 64x64x64 pingpong cluster=1x2", "cutlass 64x128x64 pingpong cluster=1x2"]
    assert len(mixed[2]) <= 40


@given(st.lists(st.text("abc /=", max_size=200)), st.integers(60, 120))
def test_prose_fits_and_keeps_its_words(lines: list[str], width: int) -> None:
    lines = [" ".join(word[:40] for word in line.split()) for line in lines]
    found = wrapped(lines, width)
    assert all(len(line) <= width for line in found)
    assert " ".join(found).split() == " ".join(lines).split()
    assert wrapped(lines, None) == lines
