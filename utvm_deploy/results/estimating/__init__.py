"""What a model would take on a board, by formulas: nothing is compiled and nothing runs."""
