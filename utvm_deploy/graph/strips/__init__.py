"""Layers in strips of rows: which rows they need, chains of them, and their operators."""
