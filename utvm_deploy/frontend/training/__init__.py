"""Training on the device: the step of an optimizer as a graph."""
