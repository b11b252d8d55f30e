"""The shapes of a recorded graph as unknowns, solved for another batch size."""
