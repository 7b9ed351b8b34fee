"""Which fields the messages of a graph have: what its text form needs to become bytes.

A message is a table: field name → (number, type). A type is a word for a scalar, the name
of another message, or an enum. Taken from tensorflow/core/framework/{graph,node_def,
attr_value,tensor,tensor_shape,function,op_def,versions,types,variable,resource_handle,
full_type,cost_graph}.proto and tensorflow/core/protobuf/{meta_graph,saver,saved_model,
saved_object_graph,trackable_object_graph,struct}.proto, for the fields that readers here
look at; what is not in a table is skipped, as text that a newer TensorFlow wrote.
"""

from __future__ import annotations

from ckpttool.formats.dtypes import BY_NUMBER

__all__ = ["ENUMS", "MESSAGES", "SCALARS"]

#: Scalars, by how they are stored: varint (signed and not, truth values), fixed, or text.
SCALARS = frozenset({"int", "uint", "bool", "float", "double", "bytes"})

#: The names of types.proto that are not TensorFlow's words in capitals.
_DT_NAMES = {
    1: "DT_FLOAT",
    2: "DT_DOUBLE",
    14: "DT_BFLOAT16",
    19: "DT_HALF",
}


def _dtypes() -> dict[str, int]:
    names = {"DT_INVALID": 0}
    for number, dtype in BY_NUMBER.items():
        name = _DT_NAMES.get(number, f"DT_{dtype.name.upper()}")
        names[name] = number
        names[f"{name}_REF"] = number + 100
    return names


ENUMS: dict[str, dict[str, int]] = {
    "DataType": _dtypes(),
    "SaverVersion": {"LEGACY": 0, "V1": 1, "V2": 2},
}

_MAP_KEY = {"key": (1, "bytes")}

MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "GraphDef": {
        "node": (1, "NodeDef"),
        "library": (2, "FunctionDefLibrary"),
        "version": (3, "int"),
        "versions": (4, "VersionDef"),
    },
    "NodeDef": {
        "name": (1, "bytes"),
        "op": (2, "bytes"),
        "input": (3, "bytes"),
        "device": (4, "bytes"),
        "attr": (5, "AttrEntry"),
    },
    "AttrEntry": _MAP_KEY | {"value": (2, "AttrValue")},
    "AttrValue": {
        "list": (1, "ListValue"),
        "s": (2, "bytes"),
        "i": (3, "int"),
        "f": (4, "float"),
        "b": (5, "bool"),
        "type": (6, "DataType"),
        "shape": (7, "TensorShapeProto"),
        "tensor": (8, "TensorProto"),
        "placeholder": (9, "bytes"),
        "func": (10, "NameAttrList"),
    },
    "ListValue": {
        "s": (2, "bytes"),
        "i": (3, "int"),
        "f": (4, "float"),
        "b": (5, "bool"),
        "type": (6, "DataType"),
        "shape": (7, "TensorShapeProto"),
        "tensor": (8, "TensorProto"),
        "func": (9, "NameAttrList"),
    },
    "NameAttrList": {"name": (1, "bytes"), "attr": (2, "AttrEntry")},
    "TensorShapeProto": {"dim": (2, "Dim"), "unknown_rank": (3, "bool")},
    "Dim": {"size": (1, "int"), "name": (2, "bytes")},
    "TensorProto": {
        "dtype": (1, "DataType"),
        "tensor_shape": (2, "TensorShapeProto"),
        "version_number": (3, "int"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "float"),
        "double_val": (6, "double"),
        "int_val": (7, "int"),
        "string_val": (8, "bytes"),
        "scomplex_val": (9, "float"),
        "int64_val": (10, "int"),
        "bool_val": (11, "bool"),
        "dcomplex_val": (12, "double"),
        "half_val": (13, "int"),
        "uint32_val": (16, "uint"),
        "uint64_val": (17, "uint"),
        "float8_val": (18, "bytes"),
    },
    "VersionDef": {
        "producer": (1, "int"),
        "min_consumer": (2, "int"),
        "bad_consumers": (3, "int"),
    },
    "FunctionDefLibrary": {"function": (1, "FunctionDef")},
    "FunctionDef": {
        "signature": (1, "OpDef"),
        "node_def": (3, "NodeDef"),
        "ret": (4, "TextEntry"),
        "attr": (5, "AttrEntry"),
        "control_ret": (6, "TextEntry"),
    },
    "TextEntry": _MAP_KEY | {"value": (2, "bytes")},
    "OpDef": {
        "name": (1, "bytes"),
        "input_arg": (2, "ArgDef"),
        "output_arg": (3, "ArgDef"),
    },
    "ArgDef": {"name": (1, "bytes"), "description": (2, "bytes"), "type": (3, "DataType")},
    "MetaGraphDef": {
        "meta_info_def": (1, "MetaInfoDef"),
        "graph_def": (2, "GraphDef"),
        "saver_def": (3, "SaverDef"),
        "collection_def": (4, "CollectionEntry"),
        "signature_def": (5, "SignatureEntry"),
        "asset_file_def": (6, "AssetFileDef"),
        "object_graph_def": (7, "SavedObjectGraph"),
    },
    "MetaInfoDef": {
        "meta_graph_version": (1, "bytes"),
        "stripped_op_list": (2, "OpList"),
        "tags": (4, "bytes"),
        "tensorflow_version": (5, "bytes"),
        "tensorflow_git_version": (6, "bytes"),
        "stripped_default_attrs": (7, "bool"),
    },
    "OpList": {"op": (1, "OpDef")},
    "SaverDef": {
        "filename_tensor_name": (1, "bytes"),
        "save_tensor_name": (2, "bytes"),
        "restore_op_name": (3, "bytes"),
        "max_to_keep": (4, "int"),
        "sharded": (5, "bool"),
        "keep_checkpoint_every_n_hours": (6, "float"),
        "version": (7, "SaverVersion"),
    },
    "CollectionEntry": _MAP_KEY | {"value": (2, "CollectionDef")},
    "CollectionDef": {
        "node_list": (1, "TextList"),
        "bytes_list": (2, "TextList"),
        "int64_list": (3, "IntList"),
        "float_list": (4, "FloatList"),
        "any_list": (5, "AnyList"),
    },
    "TextList": {"value": (1, "bytes")},
    "IntList": {"value": (1, "int")},
    "FloatList": {"value": (1, "float")},
    "AnyList": {"value": (1, "Any")},
    "Any": {"type_url": (1, "bytes"), "value": (2, "bytes")},
    "SignatureEntry": _MAP_KEY | {"value": (2, "SignatureDef")},
    "SignatureDef": {
        "inputs": (1, "TensorInfoEntry"),
        "outputs": (2, "TensorInfoEntry"),
        "method_name": (3, "bytes"),
    },
    "TensorInfoEntry": _MAP_KEY | {"value": (2, "TensorInfo")},
    "TensorInfo": {
        "name": (1, "bytes"),
        "dtype": (2, "DataType"),
        "tensor_shape": (3, "TensorShapeProto"),
    },
    "AssetFileDef": {"tensor_info": (1, "TensorInfo"), "filename": (2, "bytes")},
    "SavedObjectGraph": {"nodes": (1, "SavedObject")},
    "SavedObject": {
        "slot_variables": (3, "SlotVariable"),
        "user_object": (4, "SavedUserObject"),
        "variable": (7, "SavedVariable"),
    },
    "SlotVariable": {"slot_name": (2, "bytes")},
    "SavedUserObject": {"identifier": (1, "bytes")},
    "SavedVariable": {
        "dtype": (1, "DataType"),
        "shape": (2, "TensorShapeProto"),
        "trainable": (3, "bool"),
        "name": (6, "bytes"),
    },
    "SavedModel": {
        "saved_model_schema_version": (1, "int"),
        "meta_graphs": (2, "MetaGraphDef"),
    },
}
