"""What the driver fills memory of a GPU with, on the emulated one."""

from __future__ import annotations

import subprocess

import emulated
import pytest
from shared_folders import SharedFolder

from bolt_build.tuning.compile import glue


@pytest.mark.large
def test_tables_that_ascend_go_evenly_from_the_lowest_to_the_highest(shared_folder: SharedFolder) -> None:
    includes = (glue.driver_sources()[0].parent, glue.include_dir())
    program = emulated.probe_program("fill", shared_folder, *(f"-I{path}" for path in includes))
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    ascending, one, drawn = ([int(word) for word in line.split()] for line in printed.splitlines())
    assert ascending == [-1, 1, 2, 4, 5, 7, 8]
    assert one == [-1]
    assert drawn != sorted(drawn)
    assert all(-1 <= value <= 8 for value in drawn)
