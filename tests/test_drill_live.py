"""Drills in real time: served by `argus drill`, scraped by a real Prometheus with the shipped rules."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path

from argus import ruleset
from argus.drill.topology import Topology
from argus.drill.truth import judge
from argus.prometheus import Alertmanager, Prometheus, WebhookReceiver
from drill_support import Live, Served, alertmanager, ever_fired, let_pass, served, served_together
from exporter_support import until

SPEED = 10.0
"""The rules' 15 s become 1.5 s."""

CONFIG = """
global: {{scrape_interval: 1500ms, scrape_timeout: 1500ms, evaluation_interval: 1500ms}}
rule_files: [rules/*.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs: [{{job_name: argus, static_configs: [{{targets: {targets}}}]}}]
"""

# Situations and topologies, as runs of one Prometheus: they must not disturb each other either.
SMALL = Topology(dp=4, pp=2)
DRILLS = {
    name: replace(drill, since=60.0)
    for name, drill in {
        "healthy": Live("healthy", Topology(dp=4, tp=2, pp=2, ep=2)),
        "straggler": Live("straggler", Topology(dp=2, tp=2, pp=2, cp=2, chunks=2)),
        "masked": Live("masked-straggler", Topology(dp=8, pp=2, ep=4)),
        "bubble": Live("bubble", SMALL),
        "link": Live("link-ep", Topology(dp=8, pp=2, ep=2), factor=9.0),
        "host": Live("host-bound", Topology(dp=6, pp=1, per_node=2)),
        "hang": Live("hang", SMALL),
        "dead": Live("rank-down", SMALL),
    }.items()
}


def test_a_drill_is_served_like_a_live_job() -> None:
    sizes = ["--dp", "8", "--pp", "2", "--ep", "2", "--iteration", "0.05"]
    with served("link-ep", *sizes) as (address, said):
        # Lanes 4 and 5 of stage 0 are the group of the rank in the middle.
        assert any("must be accused: ArgusLinkDegraded{group=ep, group_id=ep-4}" in line for line in said)
        page = ""

        def complete() -> bool:
            nonlocal page
            page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
            return "argus_window_collective_seconds" in page

        until(complete, 60)
    # Rank 9 is stage 1, dp 1; its group is the first of its stage.
    assert 'rank="9",group="ep",group_id="ep-8"} 2' in page
    assert 'argus_rank_info{run_id="drill",role="pp1",rank="9",node="node1"' in page


def test_a_scrape_sees_that_the_run_has_ended() -> None:
    drill = Served(["rank-down", "--dp", "4", "--pp", "1", "--speed", "100"])
    try:
        url = f"http://{drill.address()}/metrics"

        def page() -> list[str]:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read().decode().splitlines()

        until(lambda: any(line.startswith("argus_rank_up{") and line.endswith(" 0") for line in page()))
        drill.stop()
        lines = page()
        assert [line for line in lines if line.startswith("argus_exporter_ranks_ended{")] == [
            'argus_exporter_ranks_ended{run_id="drill"} 3'
        ]
        assert len([line for line in lines if line.startswith("argus_rank_up{")]) == 1
        assert drill.status() == 0
    finally:
        drill.kill()


def test_drills_are_diagnosed_side_by_side(prometheus_binary: Path) -> None:
    """Right culprit and cause for every run, nobody else, and Alertmanager delivers it."""
    options = ruleset.Options(
        time_scale=1 / SPEED,
        # A number of seconds, not a duration: no time scale reaches it.  No less, for drills stand still
        # when others have the machine.
        thresholds={"hung_seconds": "20"},
    )
    with (
        WebhookReceiver() as webhook,
        Alertmanager(alertmanager(webhook, 1 / SPEED)) as delivery,
        served_together(DRILLS, SPEED) as addresses,
        Prometheus(
            CONFIG.format(alertmanager=delivery.address, targets=json.dumps(addresses)),
            ruleset.render_files(options),
            binary=prometheus_binary,
            # An alert that began before Alertmanager was found is sent again soon.
            flags=["--rules.alert.resend-delay=2s"],
        ) as prometheus,
    ):

        def missing(fired: list[dict[str, str]]) -> dict[str, str]:
            found = {}
            for run_id, live in DRILLS.items():
                lacking = live.truth.missing(alert for alert in fired if alert.get("run_id") == run_id)
                if lacking:
                    found[run_id] = ", ".join(map(str, lacking))
            return found

        def delivered() -> list[dict[str, str]]:
            return [alert["labels"] for one in webhook.deliveries for alert in one.payload["alerts"]]

        until(lambda: missing(ever_fired(prometheus)) == {}, 300, pause=0.5)
        # Whether a symptom is delivered depends on what came first: a cause silences it.
        silenced = {"hang": "ArgusRunHung{}"}
        until(lambda: missing(delivered()).items() <= silenced.items(), 120, pause=0.5)
        let_pass(prometheus, 6)  # and nobody else, for a while

        for alerts in (ever_fired(prometheus), delivered()):
            # A busy machine keeps exporters from answering within a second and a half; that is true, then.
            fired = [alert for alert in alerts if alert["alertname"] != "ArgusExporterDown"]
            assert {alert["run_id"] for alert in fired} == DRILLS.keys() - {"healthy"}, fired
            for run_id, live in DRILLS.items():
                judgement = judge(live.truth, [alert for alert in fired if alert["run_id"] == run_id])
                assert judgement.false == [], f"{run_id}: {judgement}"
