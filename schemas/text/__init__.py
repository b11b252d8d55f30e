"""Text of files: opening, inflating, repairing, splitting, reading in parallel, writing."""
