"""A model over a whole window -> the model that takes some columns a run, and keeps the others."""
