"""Kernels for cores with the DSP extension: scheduled assembly, called by C drivers.

Each micro-kernel is generated as Thumb-2 assembly, ordered by the core's timing table. Plain C that
computes the same bytes from the same packed tables is for all other compilers and cores.
"""
