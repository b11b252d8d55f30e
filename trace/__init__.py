"""The model that everything speaks: a `Trace`, its tables, and what is derived from them."""
