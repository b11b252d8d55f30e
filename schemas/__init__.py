"""What trace files look like: typed records, readers, writers and validation; no linking logic."""
