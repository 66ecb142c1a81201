"""Kernels for cores with Helium, the M-profile vector extension (Cortex-M55).

VMLADAVA adds sixteen products of int8 to a core register. DLSTP and LETP loop over vectors and
switch off the lanes beyond the end. So no buffer is padded, and no byte outside it is read or
written. Requantization has no branches: VQRDMULH rounds as the first step of the reference does.
VRSHL rounds as its second step does, after 1 is subtracted from negative values.
"""
