"""Chakra protobuf traces (.et): the messages, their attributes as readers expect them, and the file."""
