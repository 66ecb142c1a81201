"""Finds the fastest candidate of every kernel of a model by running them on a device.

    model ──workload──▶ kernels ──search──▶ candidates ──build──▶ C, objects ──measure──▶ records
                                    ▲                                                        │
                                    └────────────────────────────────────────────────────────┘

Only records come out; the compiler reads them.
"""
