"""Record a program without changing it: start it with a recorder inside, and collect the traces of its processes."""

from .program import Recorded, RecordingWindow, record_program

__all__ = ["Recorded", "RecordingWindow", "record_program"]
