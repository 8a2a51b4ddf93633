"""The messages of Prometheus's protobuf exposition format (package ``io.prometheus.client``).

Declared here by their public field numbers, in a descriptor pool of their own:
no generated code, and no clash with another package's copy of the same names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "io.prometheus.client"
_Field = descriptor_pb2.FieldDescriptorProto

_TYPES = {
    "double": _Field.TYPE_DOUBLE,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
    "sint64": _Field.TYPE_SINT64,
    "sint32": _Field.TYPE_SINT32,
    "string": _Field.TYPE_STRING,
}

METRIC_TYPES = {"counter": 0, "gauge": 1, "summary": 2, "untyped": 3, "histogram": 4}
"""``enum MetricType``."""

_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "Gauge": {"value": (1, "double")},
    "Counter": {"value": (1, "double")},
    "Untyped": {"value": (1, "double")},
    "Quantile": {"quantile": (1, "double"), "value": (2, "double")},
    "Summary": {"sample_count": (1, "uint64"), "sample_sum": (2, "double"), "quantile": (3, "*Quantile")},
    "Bucket": {"cumulative_count": (1, "uint64"), "upper_bound": (2, "double")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "bucket": (3, "*Bucket"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "positive_span": (12, "*BucketSpan"),
        "positive_delta": (13, "*sint64"),
    },
    "Metric": {
        "label": (1, "*LabelPair"),
        "gauge": (2, "Gauge"),
        "counter": (3, "Counter"),
        "summary": (4, "Summary"),
        "untyped": (5, "Untyped"),
        "timestamp_ms": (6, "int64"),
        "histogram": (7, "Histogram"),
    },
    "MetricFamily": {
        "name": (1, "string"),
        "help": (2, "string"),
        "type": (3, "MetricType"),
        "metric": (4, "*Metric"),
    },
}
"""Fields by message: number and type, ``*`` for repeated."""


def _build() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="argus/metrics.proto", package=_PACKAGE, syntax="proto2")
    enum = file.enum_type.add(name="MetricType")
    for name, number in METRIC_TYPES.items():
        enum.value.add(name=name.upper(), number=number)
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, (number, type_) in fields.items():
            field = declared.field.add(name=name, number=number)
            repeated = type_.startswith("*")
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            type_ = type_.removeprefix("*")
            if type_ in _TYPES:
                field.type = _TYPES[type_]
            else:
                field.type = _Field.TYPE_ENUM if type_ == "MetricType" else _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


MetricFamily: Any = _build()
"""Message class of one family."""
