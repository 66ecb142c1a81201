"""Portable kernels of integers."""
