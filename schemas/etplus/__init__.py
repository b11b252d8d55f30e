"""ET+ files: reading and writing them."""
