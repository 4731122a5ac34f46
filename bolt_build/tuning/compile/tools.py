"""What measured times depend on beside the device: the toolchain that compiles a target's kernels."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.build.own_code.own_sources import header_digest, tree_digest
from bolt_build.digest import digest
from bolt_build.families.base import Family
from bolt_build.lockfile.fingerprint import TuningTools
from bolt_build.targets import Target
from bolt_build.toolchain import Toolchain


def tuning_tools(target: Target, families: Sequence[Family], toolchain: Toolchain) -> TuningTools:
    """The tools of `toolchain` that compile kernels of `target`, its flags, and the headers of its families: all of
    them, and for each those that its own include, in whichever family they lie. Raises OSError."""
    versions = {tool.name: tool.version for tool in toolchain.tools}
    headers = digest([[family.name, tree_digest(family.include_dir)] for family in families])
    folders = [family.include_dir for family in families]
    included = tuple((each.name, header_digest(sorted(each.include_dir.rglob("*.h")), folders)) for each in families)
    flags = " ".join(target.compile_flags)
    return TuningTools(versions.get("nvcc", ""), versions.get("cutlass", ""), flags, headers, included)
