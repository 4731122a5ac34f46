"""Operators of the domain ai.onnx.ml, and TfIdfVectorizer."""
