"""Which families a target gets."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from bolt_build.errors import BoltError
from bolt_build.families import load
from bolt_build.targets import HOST, target_named


def test_loads_a_targets_families_in_its_order() -> None:
    assert [family.name for family in load(HOST)] == ["onednn", "portable"]
    assert [family.name for family in load(replace(HOST, families=("portable",)))] == ["portable"]


def test_headers_of_each_family_are_in_its_folder() -> None:
    for family in load(HOST):
        assert sorted((family.include_dir / f"bolt_{family.name}").glob("*.h"))


def test_sources_of_each_family_are_named_apart() -> None:
    for family in load(HOST):
        assert all(path.is_file() and path.suffix == ".cpp" for path in family.sources)
        assert len({path.stem for path in family.sources}) == len(family.sources)
    assert [path.name for family in load(HOST) for path in family.sources] == ["operators.cpp", "primitive.cpp"]


KNOWN = "known: onednn, cutlass, grouped, attention, portable"


def test_names_every_unknown_family() -> None:
    with pytest.raises(BoltError) as caught:
        load(replace(HOST, families=("cudnn", "portable", "mkl")))
    assert [(d.code, d.message, d.hint) for d in caught.value.diagnostics] == [
        ("unknown-family", "target 'host' names the unknown kernel family 'cudnn'", KNOWN),
        ("unknown-family", "target 'host' names the unknown kernel family 'mkl'", KNOWN),
    ]


def test_what_all_families_share_is_imported_without_any_of_them() -> None:
    code = (
        "import sys, bolt_build.families.base\n"
        "print([name for name in sys.modules if name.startswith('bolt_build.families.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['bolt_build.families.base']\n"


def test_lambdas_of_headers_are_for_one_side_alone() -> None:
    """Of a lambda for host and device nvcc makes copies through pointers of one source file, and the linker keeps what
    uses them of any: an engine with a source file for each batch called null."""
    for family in load(target_named("h200")):
        for header in sorted(family.include_dir.rglob("*.h")):
            both = re.findall(r"\] *(?:BOLT_HD|__host__ __device__|__device__ __host__) *\(", header.read_text())
            assert both == [], header.name
