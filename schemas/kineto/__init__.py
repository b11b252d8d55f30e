"""Read Kineto traces, and traces in the same format from other recorders of PyTorch."""
