"""Renders analysis tables as text, HTML page and plots."""
