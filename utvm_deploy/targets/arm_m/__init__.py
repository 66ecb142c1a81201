"""Arm's M profile: cores, toolchain, timing tables."""
