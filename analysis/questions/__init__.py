"""The server for agents: the tools that answer questions about loaded traces (docs/reference/agents.md)."""
