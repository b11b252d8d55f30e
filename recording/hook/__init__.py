"""This code runs inside the recorded program. It imports only the standard library and PyTorch."""
