"""What of a parsed model is imported (`onnx_import.OnnxModel`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bolt_build.errors import Diagnostic
from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.ir import Value


class ParsedModel(Protocol):
    """The tensors, nodes and findings of a model, before inputs are bound."""

    @property
    def path(self) -> Path: ...

    @property
    def opset(self) -> int: ...

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    @property
    def constants(self) -> tuple[Value, ...]: ...

    @property
    def nodes(self) -> tuple[OnnxNode, ...]: ...

    @property
    def problems(self) -> tuple[Diagnostic, ...]: ...

    @property
    def narrow(self) -> tuple[tuple[str, str], ...]: ...
