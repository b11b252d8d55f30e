"""What a linked trace, or a Kineto trace alone, tells about where the time goes."""
