"""How good a model is on labelled data: as float, by the reference kernels, and on a board."""
