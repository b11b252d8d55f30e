"""What runs in a recorded program, which may have no etplus: needs the standard library and PyTorch only."""
