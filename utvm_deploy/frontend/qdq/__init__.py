"""Graphs of QUANTIZE and DEQUANTIZE become integer operators of a .tflite file."""
