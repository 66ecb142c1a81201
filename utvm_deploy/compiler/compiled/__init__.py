"""What a compilation gives: the model, its report, its archive."""
