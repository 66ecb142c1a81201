"""This computer as a target."""
