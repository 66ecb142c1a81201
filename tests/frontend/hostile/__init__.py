"""Hostile files: random models, mutated, go through import and compiler in a child with limits.

``python -m tests.frontend.hostile --count 5000`` runs many;
docs/contributing/random-models.md says how.
"""
