"""The messages of Perfetto's traces, as far as they are used here.

Field numbers and types are those of Perfetto's public ``protos/perfetto/trace``
(stable: the format promises that old traces stay readable).  They are declared
here, so that neither a protobuf compiler nor Perfetto's own package is needed.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "perfetto.protos"
_Field = descriptor_pb2.FieldDescriptorProto

_TYPES = {
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "int32": _Field.TYPE_INT32,
    "string": _Field.TYPE_STRING,
}

SLICE_BEGIN, SLICE_END = 1, 2
"""``TrackEvent.Type``."""
STATE_CLEARED, NEEDS_STATE = 1, 2
"""``TracePacket.SequenceFlags``: interned names begin anew; are made use of."""
EXPLICIT_ORDER = 3
"""``TrackDescriptor.ChildTracksOrdering.EXPLICIT``."""
REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
"""``BuiltinClock``; times of packets that don't say otherwise are BOOTTIME's."""

_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "InternedString": {"iid": (1, "uint64"), "name": (2, "string")},
    "InternedData": {
        "event_names": (2, "*InternedString"),
        "debug_annotation_names": (3, "*InternedString"),
    },
    "DebugAnnotation": {
        "name_iid": (1, "uint64"),
        "uint_value": (3, "uint64"),
        "string_value": (6, "string"),
    },
    "TrackEvent": {
        "debug_annotations": (4, "*DebugAnnotation"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
    },
    "ProcessDescriptor": {
        "pid": (1, "int32"),
        "process_name": (6, "string"),
        "process_labels": (8, "*string"),
    },
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "string"),
        "process": (3, "ProcessDescriptor"),
        "parent_uuid": (5, "uint64"),
        "child_ordering": (11, "int32"),
        "sibling_order_rank": (12, "int32"),
    },
    "Clock": {"clock_id": (1, "uint32"), "timestamp": (2, "uint64")},
    "ClockSnapshot": {"clocks": (1, "*Clock")},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"),
        "timestamp": (8, "uint64"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, "uint32"),
        "track_descriptor": (60, "TrackDescriptor"),
    },
    "Trace": {"packet": (1, "*TracePacket")},
}
"""Fields by message: number and type, ``*`` for repeated."""


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="argus/perfetto.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, (number, type_) in fields.items():
            field = declared.field.add(name=name, number=number)
            field.label = _Field.LABEL_REPEATED if type_.startswith("*") else _Field.LABEL_OPTIONAL
            type_ = type_.removeprefix("*")
            if type_ in _TYPES:
                field.type = _TYPES[type_]
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Trace", "TracePacket")
    }


_CLASSES = _build()
Trace: Any = _CLASSES["Trace"]
TracePacket: Any = _CLASSES["TracePacket"]
