"""Code that runs inside the recorded program; it imports only the standard library and PyTorch."""
