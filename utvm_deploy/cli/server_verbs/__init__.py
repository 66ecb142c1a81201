"""Verbs of the server, its workers and its clients."""
