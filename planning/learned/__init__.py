"""Learned predictors of graph times. They require `etplus[learn]` (PyTorch and safetensors)."""
