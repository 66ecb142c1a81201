"""Kernels for cores without parallel arithmetic: Cortex-M3 (Thumb-2), Cortex-M0 and M0+ (Thumb).

Each product loads two bytes and multiplies. Tiles of pixels and channels in registers save loads.
Splitting words with SXTB would take one instruction more for every four bytes. With Thumb-2, an
output is requantized by SMULL in seven instructions (``native/scaling.py``). The modules
``armv6m_*`` are for cores without Thumb-2. These have no 64-bit product and make it of four others.
"""
