"""What is measured of a model on a board, and how it is shown."""
