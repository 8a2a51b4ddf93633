"""A private Prometheus and Alertmanager: found, run, asked and listened to.

Used by ``argus diagnose``, ``argus demo`` and the tests.  Nothing here is
needed by a rank or by the exporter.
"""

from argus.prometheus.binaries import (
    BinaryNotFoundError,
    binary_version,
    find_alertmanager,
    find_prometheus,
    find_promtool,
)
from argus.prometheus.client import Client, Course, QueryError, Sample
from argus.prometheus.process import Process
from argus.prometheus.receivers import AlertReceiver, Delivery, WebhookReceiver
from argus.prometheus.servers import Alertmanager, Prometheus, StartError, free_port

__all__ = [
    "AlertReceiver",
    "Alertmanager",
    "BinaryNotFoundError",
    "Client",
    "Course",
    "Delivery",
    "Process",
    "Prometheus",
    "QueryError",
    "Sample",
    "StartError",
    "WebhookReceiver",
    "binary_version",
    "find_alertmanager",
    "find_prometheus",
    "find_promtool",
    "free_port",
]
