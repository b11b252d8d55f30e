"""Perfetto traces (`.pftrace`): read into the columns of a Kineto trace, and what writers need of the format."""
