"""Several ranks of a job: linking them as a batch, pairing files, matching collectives, clocks."""
