"""Learned predictors of graph times. The predictors require `etplus[learn]` (PyTorch and safetensors)."""
