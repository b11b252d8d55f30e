"""A job of many ranks: which files belong together, linking in parallel, and what follows from all ranks together."""
