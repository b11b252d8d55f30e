"""Files of PyTorch's compiler and its graph annotations next to the traces."""
