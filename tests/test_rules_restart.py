"""Prometheus restarts in the middle of faults: nobody gets a message more or less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from argus import ruleset
from argus.drill.topology import Topology
from argus.prometheus import Alertmanager, Prometheus, WebhookReceiver
from drill_support import Live, alertmanager, let_pass, served_together
from exporter_support import until

SPEED = 15.0
"""The rules' 15 s become 1 s."""

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs: [{{job_name: argus, static_configs: [{{targets: {targets}}}]}}]
"""
FLAGS = [
    # As documented: one minute, here 4 s.  Alerts that wait longer remember for how long they have.
    "--rules.alert.for-grace-period=4s",
    # Alertmanager gives an alert up after four of these: not within this test, however slow the machine.
    "--rules.alert.resend-delay=30s",
]
DRILLS = {
    "slow": Live("straggler", Topology(dp=4, pp=1), since=0.0),
    "stages": Live("uneven-stages", Topology(dp=2, pp=4), since=0.0),
}
QUICK, PATIENT = "ArgusComputeStraggler", "ArgusStageImbalance"
"""Alerts that wait for one scrape, and for minutes."""


def test_no_alert_is_lost_or_told_twice(prometheus_binary: Path, tmp_path: Path) -> None:
    rules = ruleset.render_files(ruleset.Options(time_scale=1 / SPEED, thresholds={"imbalance_for": "2m"}))
    with (
        WebhookReceiver() as webhook,
        Alertmanager(alertmanager(webhook, 1 / SPEED)) as delivery,
        served_together(DRILLS, SPEED) as addresses,
    ):
        config = CONFIG.format(alertmanager=delivery.address, targets=json.dumps(addresses))

        def started() -> Prometheus:
            prometheus = Prometheus(
                config, rules, binary=prometheus_binary, directory=tmp_path / "prometheus", flags=FLAGS
            )
            prometheus.wait_for_alertmanager()
            return prometheus

        def firing(prometheus: Prometheus) -> dict[str, str]:
            """Since when, by name, of the alerts in question."""
            return {
                alert["labels"]["alertname"]: alert["activeAt"]
                for alert in prometheus.client.alerts()
                if alert["state"] == "firing" and alert["labels"]["alertname"] in (QUICK, PATIENT)
            }

        def delivered() -> list[dict[str, Any]]:
            return [alert for one in webhook.deliveries for alert in one.payload["alerts"]]

        with started() as prometheus:
            until(lambda: firing(prometheus).keys() == {QUICK, PATIENT}, 240, pause=0.5)
            until(lambda: {a["labels"]["alertname"] for a in delivered()} >= {QUICK, PATIENT}, 120, pause=0.5)
            let_pass(prometheus, 4)
            before = firing(prometheus)
        known, count = [alert["labels"] for alert in delivered()], len(webhook.deliveries)

        with started() as prometheus:
            until(lambda: firing(prometheus).keys() == {QUICK, PATIENT}, 120, pause=0.5)
            after = firing(prometheus)
            # Its two minutes were not waited for again.
            assert after[PATIENT][:19] == before[PATIENT][:19]  # kept in seconds
            assert after[QUICK] > before[QUICK]
            let_pass(prometheus, 8)  # Alertmanager looks at its groups every 2 s and 4 s

        assert [alert["labels"] for alert in delivered() if alert["status"] == "resolved"] == []
        repeated = [
            one.payload["alerts"]
            for one in webhook.deliveries[count:]
            if all(alert["labels"] in known for alert in one.payload["alerts"])
        ]
        assert repeated == []
