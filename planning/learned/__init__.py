"""Learned predictors of graph times. They need the extra `learn` (PyTorch and safetensors)."""
