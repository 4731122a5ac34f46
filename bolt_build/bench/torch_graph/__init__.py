"""An ONNX model as a torch module: the graph as it was imported, before any pass, with torch's own layers.

Made from this project's graph rather than by a converter package, so that a peer takes every model that an engine can
be built of, whatever its opset, and nothing has to be installed beside torch.
"""

from bolt_build.bench.torch_graph.module import Unsupported, torch_module

__all__ = ["Unsupported", "torch_module"]
