"""Verbs that take a model and give files or facts."""
