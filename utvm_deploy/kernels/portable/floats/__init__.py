"""Portable kernels of float32."""
