"""A server and its tools for agents' questions about loaded traces (docs/reference/agents.md)."""
