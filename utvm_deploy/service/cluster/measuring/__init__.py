"""Measuring candidates in the workers of a cluster."""
