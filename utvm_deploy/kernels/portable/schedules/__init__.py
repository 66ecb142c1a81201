"""How loops of portable kernels are ordered, tiled and unrolled."""
