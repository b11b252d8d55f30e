"""Work with the ranks of a job: link them as a batch, pair files, match collectives, and align clocks."""
