"""Kernels of int8 for RISC-V cores with vectors (Zve32x), of any length from 128 bits on.

Channels are the lanes. A weight of each channel is multiplied by a byte of a pixel.
"""
