"""Where the time goes: breakdown, overheads, roofline, comparison, report."""
