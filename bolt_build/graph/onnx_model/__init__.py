"""ONNX files as plain data, checked, with local functions inlined and nodes in order."""
