"""Kernels by scheduled assembly and C routines, and what the families have in common."""
