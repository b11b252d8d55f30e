"""Trace file formats: typed records, readers, writers and validation, without linking logic."""
