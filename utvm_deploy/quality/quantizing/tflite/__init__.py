"""Quantizing a .tflite file."""
