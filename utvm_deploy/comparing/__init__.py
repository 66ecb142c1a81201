"""Our kernels beside those of another engine, layer by layer, and the gate for CI."""
