"""Render analysis tables as text, HTML pages and plots."""
