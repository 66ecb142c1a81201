"""Operators by one call of a C routine on whole buffers, for every core."""
