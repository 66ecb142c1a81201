"""Matrix products with weights of which most are zeros: packed tables, and what multiplies them."""
