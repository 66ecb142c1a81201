"""What outputs are compared with: the reference interpreter, or the runtime a model came from."""
