"""Recording an unchanged program: start it with a recorder inside, collect what each of its processes left."""

from .program import Recorded, RecordingWindow, record_program

__all__ = ["Recorded", "RecordingWindow", "record_program"]
