"""ET+ to other formats and back; converters read ET+ documents and do not know the linker."""
