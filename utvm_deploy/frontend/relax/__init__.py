"""TVM's Relax modules, and float32 ONNX files by way of them, as graphs of this package."""
