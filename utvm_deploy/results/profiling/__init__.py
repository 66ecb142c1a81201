"""What each layer of a model costs on a board, where its data lie, and its hottest code."""
