"""Solve the shapes of a recorded graph for another batch size."""
