"""A job of many ranks: which files belong together, linking them side by side, and what the ranks tell together."""
