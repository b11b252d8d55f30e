"""What PyTorch's compiler and its graph annotations say of kernels, in files beside the traces."""

from .compile_files import CompileFiles, find_compile_files, read_compile_files
from .graph_annotations import NodeAnnotation, annotated_args
from .kernel_information import CompiledGraph, CompiledKernel

__all__ = [
    "CompileFiles",
    "CompiledGraph",
    "CompiledKernel",
    "NodeAnnotation",
    "annotated_args",
    "find_compile_files",
    "read_compile_files",
]
