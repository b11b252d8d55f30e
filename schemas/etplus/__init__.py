"""Read and write ET+ files."""
