"""Quantizing a PyTorch module."""
