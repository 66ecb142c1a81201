"""Chooses the kernel of an operator for a core, and lists the other candidates."""
