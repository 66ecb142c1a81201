"""Verbs about this computer and this project."""
