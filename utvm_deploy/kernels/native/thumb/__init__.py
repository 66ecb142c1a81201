"""Kernels for cores with Thumb-2 but no parallel arithmetic (Cortex-M3), and for those below.

A product is LDRSB twice and MLA; what can be saved is loads, by tiles of pixels and channels in
registers. Splitting words with SXTB would take one instruction more for every four bytes. Outputs
are requantized with SMULL in seven instructions, by the rules of ``native/scaling.py``. Cores
without Thumb-2 (Cortex-M0+) get C that computes the same, with products of 64 bits from four of 32.
"""
