"""Derive the shapes of a recorded graph for a different batch size or sequence length."""
