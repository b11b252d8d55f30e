"""Read Perfetto traces (`.pftrace`) into the columns of a Kineto trace; parts of the format for writers."""
