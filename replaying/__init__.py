"""Replays the graph of a trace: baseline, what-ifs, critical path, several ranks on a network."""
