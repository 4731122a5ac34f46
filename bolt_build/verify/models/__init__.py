"""The model as onnxruntime can compute it: cut into layers, unrolled, written out, widened."""
