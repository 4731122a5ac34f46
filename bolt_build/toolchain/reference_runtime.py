"""onnxruntime as it is imported here: it tells nobody of the models that it runs."""

from __future__ import annotations

import importlib
import os
from typing import Any

_SILENT = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> Any:
    """The module. Raises ImportError where it is not installed.

    Since 1.29 its Linux wheels send names and digests of models to their maker, unless this variable stands in the
    environment before the import; they also leave `.ses` in the folder for temporary files, and an identifier below
    `~/.cache`. A model is its owner's, so the variable is set, whatever it was before.
    """
    os.environ[_SILENT] = "1"
    return importlib.import_module("onnxruntime")
