"""onnxruntime is imported so that it tells nobody of the models that it runs, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import bolt_build

PACKAGE = Path(bolt_build.__file__).parent
PROGRAM = """\
import os
from bolt_build.toolchain.reference_runtime import import_onnxruntime
import_onnxruntime()
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


def test_it_leaves_nothing_in_any_folder_of_the_user(tmp_path: Path) -> None:
    """Also where the variable said something else."""
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("XDG_")}
    own = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "ORT_DISABLE_TELEMETRY": "0"}
    words = [sys.executable, "-B", "-c", PROGRAM]
    done = subprocess.run(words, env=kept | own, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert (done.stdout, list(tmp_path.iterdir())) == ("1\n", [])


def test_nothing_else_of_the_package_imports_it() -> None:
    importing = re.compile(r"^\s*(import|from) onnxruntime\b|import_module\(.onnxruntime.\)", re.MULTILINE)
    found = [path.name for path in sorted(PACKAGE.rglob("*.py")) if importing.search(path.read_text())]
    assert found == ["reference_runtime.py"]
