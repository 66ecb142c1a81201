"""How good a model's answers are, and how to make it small: datasets, evaluation, quantization."""
