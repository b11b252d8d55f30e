"""Files that belong to traces: files from PyTorch's compiler, and graph annotations."""
