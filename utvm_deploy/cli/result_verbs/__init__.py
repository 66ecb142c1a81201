"""Verbs about results."""
