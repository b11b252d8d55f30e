"""An MCP server with tools that answer agents' questions about loaded traces (docs/reference/agents.md)."""
