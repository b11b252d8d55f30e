"""Predict jobs that were not recorded: on other devices, at other input sizes, or in other parallel layouts."""
