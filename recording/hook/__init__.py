"""Code that runs inside the recorded program. It imports only the standard library and PyTorch, as etplus may be
missing.
"""
