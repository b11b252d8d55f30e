"""Matching ET nodes to Kineto CPU events, one method a module."""
