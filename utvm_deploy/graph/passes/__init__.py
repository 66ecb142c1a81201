"""Rewriting a graph where no output byte changes."""
