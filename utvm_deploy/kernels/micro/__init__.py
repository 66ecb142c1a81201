"""What the micro-kernels of all families are made of.

Instructions as data, the scheduler that orders them by a core's timing table, routines as C text,
the proofs of requantization, and the TensorIR around it all.
"""
