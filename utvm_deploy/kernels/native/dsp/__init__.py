"""Kernels for cores with the DSP extension: scheduled assembly, called by C drivers.

Each micro-kernel is generated as Thumb-2 assembly, ordered by the core's timing table, beside plain
C that computes the same bytes from the same packed tables, for every other compiler and core.
"""
