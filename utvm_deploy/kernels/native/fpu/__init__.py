"""Kernels of float32 for cores with a floating-point unit of single precision.

The sums of a tile stay in the unit's 32 registers. VMLA rounds the product and then the sum, as
VMUL and VADD do, and each sum adds its products in the order of LiteRT's reference kernels. So
outputs have equal bits.

Positions outside the image are multiplied as +0.0. With finite weights, this adds +0.0 or -0.0 to
a sum. A sum begins with +0.0. Rounded to nearest, no addition makes it -0.0 from there: that
takes two terms of -0.0. So these additions leave every bit as it is. Layers with padding and a
weight that is not finite are left to other kernels.
"""
