"""One naive PrimFunc for each operator, its default schedule, and the template-free space."""
