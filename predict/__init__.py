"""Predicts times with fitted cost models: of kernels, operators, whole traces."""
