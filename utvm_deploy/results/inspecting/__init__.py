"""What a model file holds: facts, the operators that are supported, and a picture."""
