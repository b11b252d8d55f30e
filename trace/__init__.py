"""The data model of etplus: a `Trace`, its tables, and values derived from the tables."""
