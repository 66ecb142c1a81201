"""PyTorch in memory: modules on a board, and the backend "utvm" of ``torch.compile``."""
