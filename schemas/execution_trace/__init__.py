"""Read PyTorch Execution Traces."""
