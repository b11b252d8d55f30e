"""Write et_def_pb2.py and et_def_pb2.pyi from et_def.proto: `python tests/compile_et_def.py`.

protoc's own Python output needs a protobuf runtime as new as the protoc that wrote it. It also registers its messages
in the process-wide pool, so a second copy of et_def.proto fails to import. The module written here has its own pool and
works with protobuf 4.21 and later.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2

_FOLDER = Path(__file__).resolve().parents[1] / "schemas" / "chakra"
_PROTO = "et_def.proto"
_TEMPLATE = '''\
"""Messages of et_def.proto; written by `python tests/compile_et_def.py`, not by hand."""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_SERIALIZED = (
{literal}
)

# Not the default pool: a process that also imports another copy of et_def.proto would get a clash of names.
_POOL = descriptor_pool.DescriptorPool()
DESCRIPTOR = _POOL.AddSerializedFile(_SERIALIZED)
_message_class = (
    getattr(message_factory, "GetMessageClass", None)  # protobuf 4.22 and later
    or message_factory.MessageFactory(_POOL).GetPrototype
)

for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = _message_class(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    globals().update((_value.name, _value.number) for _value in _enum.values)
'''


def compile_proto() -> tuple[bytes, str]:
    """Run protoc (from grpcio-tools) on et_def.proto; return the serialized FileDescriptorProto and the text of the
    .pyi."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-I", "-m", "grpc_tools.protoc", f"--proto_path={_FOLDER}", f"--pyi_out={folder}"]
        subprocess.run([*command, f"--descriptor_set_out={folder}/set.pb", _PROTO], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "set.pb").read_bytes())
        stub = Path(folder, "et_def_pb2.pyi").read_text(encoding="utf-8")
    (file,) = files.file
    for message in file.message_type:
        for field in message.field:
            field.ClearField("json_name")  # follows from the name
    return file.SerializeToString(deterministic=True), stub


def module_text(serialized: bytes) -> str:
    """Return the text of et_def_pb2.py for a serialized FileDescriptorProto."""
    pieces = [serialized[at : at + 32] for at in range(0, len(serialized), 32)]
    return _TEMPLATE.format(literal="\n".join(f"    {piece!r}" for piece in pieces))


def main() -> None:
    """Write both files next to the .proto."""
    serialized, stub = compile_proto()
    (_FOLDER / "et_def_pb2.py").write_text(module_text(serialized), encoding="utf-8")
    (_FOLDER / "et_def_pb2.pyi").write_text(stub, encoding="utf-8")


if __name__ == "__main__":
    main()
