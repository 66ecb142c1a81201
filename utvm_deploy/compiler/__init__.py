"""Graph and board -> compiled model: see pipeline.py, whose stages the other modules are."""
