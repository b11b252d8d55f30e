"""Server and tools that answer agents' questions about loaded traces (docs/reference/agents.md)."""
