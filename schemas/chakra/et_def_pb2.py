"""Messages of et_def.proto; written by `python tests/compile_et_def.py`, not by hand."""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_SERIALIZED = (
    b'\n\x0cet_def.proto\x12\x0eChakraProtoMsg"O'
    b'\n\x0eGlobalMetadata\x12\x0f\n\x07version\x18\x01 \x01('
    b'\t\x12,\n\x04attr\x18\x02 \x03(\x0b2\x1e.ChakraProtoMsg'
    b'.AttributeProto"\xa1\x02\n\x04Node\x12\n\n\x02id\x18\x01'
    b' \x01(\x04\x12\x0c\n\x04name\x18\x02 \x01(\t\x12&\n\x04type\x18\x03 \x01(\x0e'
    b'2\x18.ChakraProtoMsg.NodeType\x12\x11\n\tct'
    b'rl_deps\x18\x04 \x03(\x04\x12\x11\n\tdata_deps\x18\x05 \x03(\x04'
    b'\x12\x19\n\x11start_time_micros\x18\x06 \x01(\x04\x12\x17\n\x0fd'
    b'uration_micros\x18\x07 \x01(\x04\x12&\n\x06inputs\x18\x08'
    b" \x01(\x0b2\x16.ChakraProtoMsg.IOInfo\x12'\n\x07"
    b'outputs\x18\t \x01(\x0b2\x16.ChakraProtoMsg.I'
    b'OInfo\x12,\n\x04attr\x18\n \x03(\x0b2\x1e.ChakraProt'
    b'oMsg.AttributeProto"7\n\x06IOInfo\x12\x0e\n'
    b'\x06values\x18\x01 \x01(\t\x12\x0e\n\x06shapes\x18\x02 \x01(\t\x12\r\n'
    b'\x05types\x18\x03 \x01(\t"u\n\x06Tensor\x12\x11\n\ttensor'
    b'_id\x18\x01 \x01(\x04\x12\x12\n\nstorage_id\x18\x02 \x01(\x04\x12\x0e\n'
    b'\x06offset\x18\x03 \x01(\x04\x12\x10\n\x08num_elem\x18\x04 \x01(\x04\x12'
    b'\x12\n\nelem_bytes\x18\x05 \x01(\x04\x12\x0e\n\x06device\x18\x06 '
    b'\x01(\t"\x82\t\n\x0eAttributeProto\x12\x0c\n\x04name\x18\x01'
    b' \x01(\t\x12\x12\n\ndoc_string\x18\x02 \x01(\t\x12\x14\n\ndoub'
    b'le_val\x18\x03 \x01(\x01H\x00\x121\n\x0bdouble_list\x18\x04 '
    b'\x01(\x0b2\x1a.ChakraProtoMsg.DoubleListH'
    b'\x00\x12\x13\n\tfloat_val\x18\x05 \x01(\x02H\x00\x12/\n\nfloat_'
    b'list\x18\x06 \x01(\x0b2\x19.ChakraProtoMsg.Floa'
    b'tListH\x00\x12\x13\n\tint32_val\x18\x07 \x01(\x05H\x00\x12/\n\n'
    b'int32_list\x18\x08 \x01(\x0b2\x19.ChakraProtoMs'
    b'g.Int32ListH\x00\x12\x13\n\tint64_val\x18\t \x01(\x03'
    b'H\x00\x12/\n\nint64_list\x18\n \x01(\x0b2\x19.ChakraP'
    b'rotoMsg.Int64ListH\x00\x12\x14\n\nuint32_va'
    b'l\x18\x0b \x01(\rH\x00\x121\n\x0buint32_list\x18\x0c \x01(\x0b2\x1a'
    b'.ChakraProtoMsg.Uint32ListH\x00\x12\x14\n\n'
    b'uint64_val\x18\r \x01(\x04H\x00\x121\n\x0buint64_lis'
    b't\x18\x0e \x01(\x0b2\x1a.ChakraProtoMsg.Uint64L'
    b'istH\x00\x12\x14\n\nsint32_val\x18\x0f \x01(\x11H\x00\x121\n\x0bs'
    b'int32_list\x18\x10 \x01(\x0b2\x1a.ChakraProtoMs'
    b'g.Sint32ListH\x00\x12\x14\n\nsint64_val\x18\x11 \x01'
    b'(\x12H\x00\x121\n\x0bsint64_list\x18\x12 \x01(\x0b2\x1a.Chak'
    b'raProtoMsg.Sint64ListH\x00\x12\x15\n\x0bfixed'
    b'32_val\x18\x13 \x01(\x07H\x00\x123\n\x0cfixed32_list\x18\x14'
    b' \x01(\x0b2\x1b.ChakraProtoMsg.Fixed32Lis'
    b'tH\x00\x12\x15\n\x0bfixed64_val\x18\x15 \x01(\x06H\x00\x123\n\x0cfi'
    b'xed64_list\x18\x16 \x01(\x0b2\x1b.ChakraProtoMs'
    b'g.Fixed64ListH\x00\x12\x16\n\x0csfixed32_val\x18'
    b'\x17 \x01(\x0fH\x00\x125\n\rsfixed32_list\x18\x18 \x01(\x0b2\x1c'
    b'.ChakraProtoMsg.Sfixed32ListH\x00\x12\x16'
    b'\n\x0csfixed64_val\x18\x19 \x01(\x10H\x00\x125\n\rsfixed'
    b'64_list\x18\x1a \x01(\x0b2\x1c.ChakraProtoMsg.S'
    b'fixed64ListH\x00\x12\x12\n\x08bool_val\x18\x1b \x01(\x08H'
    b'\x00\x12-\n\tbool_list\x18\x1c \x01(\x0b2\x18.ChakraPro'
    b'toMsg.BoolListH\x00\x12\x14\n\nstring_val\x18\x1d'
    b' \x01(\tH\x00\x121\n\x0bstring_list\x18\x1e \x01(\x0b2\x1a.Ch'
    b'akraProtoMsg.StringListH\x00\x12\x13\n\tbyt'
    b'es_val\x18\x1f \x01(\x0cH\x00\x12/\n\nbytes_list\x18  \x01'
    b'(\x0b2\x19.ChakraProtoMsg.BytesListH\x00B'
    b'\x07\n\x05value"\x1c\n\nDoubleList\x12\x0e\n\x06values'
    b'\x18\x01 \x03(\x01"\x1b\n\tFloatList\x12\x0e\n\x06values\x18\x01 '
    b'\x03(\x02"\x1b\n\tInt32List\x12\x0e\n\x06values\x18\x01 \x03(\x05'
    b'"\x1b\n\tInt64List\x12\x0e\n\x06values\x18\x01 \x03(\x03"\x1c\n'
    b'\nUint32List\x12\x0e\n\x06values\x18\x01 \x03(\r"\x1c\n\nU'
    b'int64List\x12\x0e\n\x06values\x18\x01 \x03(\x04"\x1c\n\nSin'
    b't32List\x12\x0e\n\x06values\x18\x01 \x03(\x11"\x1c\n\nSint6'
    b'4List\x12\x0e\n\x06values\x18\x01 \x03(\x12"\x1d\n\x0bFixed32'
    b'List\x12\x0e\n\x06values\x18\x01 \x03(\x07"\x1d\n\x0bFixed64L'
    b'ist\x12\x0e\n\x06values\x18\x01 \x03(\x06"\x1e\n\x0cSfixed32L'
    b'ist\x12\x0e\n\x06values\x18\x01 \x03(\x0f"\x1e\n\x0cSfixed64L'
    b'ist\x12\x0e\n\x06values\x18\x01 \x03(\x10"\x1a\n\x08BoolList\x12'
    b'\x0e\n\x06values\x18\x01 \x03(\x08"\x1c\n\nStringList\x12\x0e\n'
    b'\x06values\x18\x01 \x03(\t"\x1b\n\tBytesList\x12\x0e\n\x06va'
    b'lues\x18\x01 \x03(\x0c*\xa1\x01\n\x08NodeType\x12\x10\n\x0cINVAL'
    b'ID_NODE\x10\x00\x12\x11\n\rMETADATA_NODE\x10\x01\x12\x11\n\r'
    b'MEM_LOAD_NODE\x10\x02\x12\x12\n\x0eMEM_STORE_NOD'
    b'E\x10\x03\x12\r\n\tCOMP_NODE\x10\x04\x12\x12\n\x0eCOMM_SEND_'
    b'NODE\x10\x05\x12\x12\n\x0eCOMM_RECV_NODE\x10\x06\x12\x12\n\x0eCO'
    b'MM_COLL_NODE\x10\x07*\xb3\x01\n\x12CollectiveCom'
    b'mType\x12\x0e\n\nALL_REDUCE\x10\x00\x12\n\n\x06REDUCE\x10'
    b'\x01\x12\x0e\n\nALL_GATHER\x10\x02\x12\n\n\x06GATHER\x10\x03\x12\x0b\n'
    b'\x07SCATTER\x10\x04\x12\r\n\tBROADCAST\x10\x05\x12\x0e\n\nALL'
    b'_TO_ALL\x10\x06\x12\x12\n\x0eREDUCE_SCATTER\x10\x07\x12\x18\n'
    b'\x14REDUCE_SCATTER_BLOCK\x10\x08\x12\x0b\n\x07BARRI'
    b'ER\x10\tb\x06proto3'
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
