"""Compares our kernels with those of another engine, layer by layer; and the gate for CI."""
