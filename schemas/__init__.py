"""Trace file formats: typed records, readers, writers and validation. Linking is not part of this package."""
