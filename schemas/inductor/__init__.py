"""Files of PyTorch's compiler and its graph annotations next to the traces."""

from .compile_files import CompiledGraph, CompiledKernel, CompileFiles, find_compile_files, read_compile_files
from .graph_annotations import NodeAnnotation, annotated_args

__all__ = [
    "CompileFiles",
    "CompiledGraph",
    "CompiledKernel",
    "NodeAnnotation",
    "annotated_args",
    "find_compile_files",
    "read_compile_files",
]
