"""Read Perfetto traces (`.pftrace`) into the columns of a Kineto trace, and share parts of the format with writers."""
