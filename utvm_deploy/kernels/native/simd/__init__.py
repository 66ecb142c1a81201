"""Kernels of int8 for vectors of 128 bits that multiply and add pairs of 16 bits.

They are C with the compiler's intrinsics. Where it has none, plain C computes the same bytes.
"""
