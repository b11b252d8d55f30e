"""Code that runs in the recorded program, which may lack etplus: imports only the standard library and PyTorch."""
