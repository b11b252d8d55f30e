"""Chakra protobuf traces (.et): messages, attributes as readers expect them, and files."""
