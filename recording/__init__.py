"""Recording an unchanged program: start it with a recorder inside, collect what each of its processes left."""

from .program import Plan, Recorded, record_program

__all__ = ["Plan", "Recorded", "record_program"]
