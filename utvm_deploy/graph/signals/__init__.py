"""Operators of TFLite Micro's signal library: attributes, shapes, and the plan of an FFT."""
