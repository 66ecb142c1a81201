"""The command line: one module per verb; ``main`` parses and reports, ``output`` prints."""
