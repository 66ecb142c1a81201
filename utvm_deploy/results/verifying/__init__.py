"""Each output byte and each layer of a model on a board, checked against the oracle."""
