"""Kineto traces, and torch's other recorders that write the same form."""
