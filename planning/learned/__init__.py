"""Learned predictors of the time of a graph; need the extra `learn` (PyTorch, safetensors)."""
