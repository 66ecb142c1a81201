"""The stages of a compilation, in the order of ``pipeline.PIPELINE``, and what begins them."""
