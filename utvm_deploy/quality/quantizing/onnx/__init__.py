"""Quantizing an ONNX model."""
