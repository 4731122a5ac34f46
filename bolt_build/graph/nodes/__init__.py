"""From the nodes of an ONNX model to those of a graph: bound shapes, control flow that constants decide, importers."""
