"""Kernels for cores with Helium, the M-profile vector extension (Cortex-M55).

Products of int8 are VMLADAVA: sixteen to a core register. Loops over whole vectors and what is left
of them are DLSTP and LETP, which switch off the lanes beyond the end, so nothing is padded and
nothing outside a buffer is touched. Requantization needs no condition: VQRDMULH rounds as the
reference's first step does, and VRSHL, after one is taken off negative values, as its second.
"""
