"""Handle the text of files: open, gunzip, repair, split, read in parallel, and write."""
