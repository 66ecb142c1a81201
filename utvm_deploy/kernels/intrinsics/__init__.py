"""Tensor intrinsics of int8, the C that computes them, and a schedule that uses them."""
