"""Chakra protobuf traces (.et): messages, files, and the attributes that other programs expect."""
