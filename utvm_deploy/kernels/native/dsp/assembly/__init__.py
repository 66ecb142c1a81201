"""The instructions of kernels with the DSP extension."""
