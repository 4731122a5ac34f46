"""Scripts that measure bolt-build, and what makes figures of their results. README.md lists them.

Each runs as `python benchmarks/FOLDER/NAME.py`: its first line of code puts the checkout on the path, so that scripts
import each other as parts of this package. Those that share kernels, models or fakes with the tests add TESTS.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
TESTS = (ROOT / "tests" / "support", ROOT / "tests" / "kernels")
"""What tests share: models, fakes and generators, and the kernels that are tried on GPUs."""
