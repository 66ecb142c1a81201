"""Which kernel computes an operator on a core, and which others could."""
