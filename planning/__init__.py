"""Predicts jobs that were not recorded: cost models, other sizes, other layouts, measured operators."""
