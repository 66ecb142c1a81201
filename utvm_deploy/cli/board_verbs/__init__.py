"""Verbs that run something on a board, or are about boards."""
