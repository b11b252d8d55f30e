"""Renders analysis tables: text, HTML page, plots."""
