"""PyTorch Execution Traces."""
