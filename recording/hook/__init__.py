"""Code in a recorded program that may lack etplus: imports only the standard library and PyTorch."""
