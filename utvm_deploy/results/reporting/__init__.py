"""One report on a model and a board: its page, reading it again, and comparing it with another."""
