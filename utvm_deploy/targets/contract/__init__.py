"""The forms of the facts that each target has."""
