"""Kernels of int8 for 32-bit cores with many registers and a multiplier, but no other extension.

They are C. GCC's assembly of them has no instruction too many in the inner loops.
"""
