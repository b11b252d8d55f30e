"""Chakra protobuf traces (.et): their messages, files, and attributes in the form that readers expect."""
