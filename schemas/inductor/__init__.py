"""Files from PyTorch's compiler, and graph annotations, that belong to traces."""
