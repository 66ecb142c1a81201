"""Which candidates to measure next."""
