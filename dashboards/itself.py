"""ARGUS itself: exporters, tracers, rules; whether it sees all, and what it costs."""

from __future__ import annotations

from grafanalib import core

from dashboards.factory import Draft, Page, Query
from dashboards.findings import findings
from dashboards.navigation import (
    FILTERS_VARIABLE,
    ITSELF,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    others,
    variable,
)
from dashboards.panels import Column, number, series, steps, table

ONE = 'instance=~"$instance"'
JOB = 'job=~".*argus.*"'
"""How the rules know exporters, too."""
GROUPS = 'rule_group=~".*;argus-.*"'
"""Groups of the shipped rules, whatever file they are in."""
MOST = 15

INSTANCE_VARIABLE = variable(
    "instance",
    "Exporter",
    f"label_values(up{{{JOB}}}, instance)",
    several=True,
    sort=core.SORT_ALPHA_IGNORE_CASE_ASC,
)


def page() -> Page:
    itself = Page(
        ITSELF,
        "ARGUS / itself",
        "Whether ARGUS sees all that it should, and what it costs: exporters, tracers in the ranks, "
        "rules in Prometheus.",
        [SOURCE_VARIABLE, INSTANCE_VARIABLE, FILTERS_VARIABLE, RUNBOOKS_VARIABLE],
        others(ITSELF, run=False),
        events='alertname=~"ArgusExporterDown|ArgusTracerDegraded"',
        since="now-3h",
    )
    itself.row("In short", *_in_short())
    itself.row("Exporters", *_exporters())
    itself.row("Tracers", *_tracers())
    itself.row("Rules", *_rules())
    return itself


def _in_short() -> list[Draft]:
    return [
        number("Exporters up", "Exporters that answer.", "none", Query(f"sum(up{{{JOB}, {ONE}}})")),
        number(
            "Exporters down",
            "Exporters that do not answer: their ranks are not watched.",
            "none",
            Query(f"count(up{{{JOB}, {ONE}}} == 0) or vector(0)"),
            limits=steps(("green", None), ("red", 1)),
        ),
        number(
            "Collectors that fail",
            "Parts of exporters that failed in the last scrape; the other parts go on.",
            "none",
            Query(f"count(argus_exporter_collector_success{{{ONE}}} == 0) or vector(0)"),
            limits=steps(("green", None), ("red", 1)),
        ),
        number(
            "Segments not read",
            "Ranks' files that an exporter refused or could not read: another version, another owner, or "
            "damaged.",
            "none",
            Query(
                f'sum(argus_exporter_segments{{{ONE}, state=~"incompatible|unreadable|refused"}}) or '
                "vector(0)"
            ),
            limits=steps(("green", None), ("orange", 1)),
        ),
        number(
            "Ranks served",
            "Ranks alive, of these exporters.",
            "none",
            Query(f'sum(argus_exporter_segments{{{ONE}, state="alive"}})'),
        ),
        number(
            "Time for all rules",
            "Seconds that Prometheus takes for one round of ARGUS's rules. Needs a Prometheus that "
            "scrapes itself.",
            "s",
            Query(f"sum(max by (rule_group) (prometheus_rule_group_last_duration_seconds{{{GROUPS}}}))"),
        ),
        findings(
            'alertname=~"ArgusExporterDown|ArgusTracerDegraded"', "Alerts about ARGUS itself.", run=True
        ),
    ]


def _exporters() -> list[Draft]:
    return [
        table(
            "Slowest scrapes",
            f"The {MOST} exporters that take longest to answer.",
            "s",
            Query(f"topk({MOST}, max by (instance) (scrape_duration_seconds{{{JOB}, {ONE}}}))"),
            columns=[Column("Value", "scrape")],
            sort="scrape",
            width=8,
        ),
        series(
            "Time of collectors",
            "Longest time that each part of an exporter takes in a scrape.",
            "s",
            Query(
                f"max by (collector) (argus_exporter_collector_duration_seconds{{{ONE}}})", "{{collector}}"
            ),
            width=8,
        ),
        series(
            "Segments by state",
            "Ranks' files that the exporters found.",
            "none",
            Query(f"sum by (state) (argus_exporter_segments{{{ONE}}})", "{{state}}"),
            width=8,
        ),
        series(
            "CPU of exporters",
            f"Share of a core, of the {MOST} exporters that take most.",
            "percentunit",
            Query(
                f"topk({MOST}, max by (instance) (rate(process_cpu_seconds_total{{{JOB}, "
                f"{ONE}}}[$__rate_interval])))",
                "{{instance}}",
            ),
            width=8,
            coarse=True,
        ),
        series(
            "Memory of exporters",
            f"Resident memory of the {MOST} largest.",
            "bytes",
            Query(
                f"topk({MOST}, max by (instance) (process_resident_memory_bytes{{{JOB}, {ONE}}}))",
                "{{instance}}",
            ),
            width=8,
            coarse=True,
        ),
        series(
            "Samples scraped",
            "Samples of all exporters in one scrape: what Prometheus has to take in.",
            "none",
            Query(f"sum(scrape_samples_scraped{{{JOB}, {ONE}}})", "samples"),
            width=8,
        ),
        table(
            "Versions",
            "Exporters by version; a layout version other than the ranks' makes them skip segments.",
            "none",
            Query(f"count by (version, layout_version, pythonversion) (argus_exporter_build_info{{{ONE}}})"),
            columns=[Column("Value", "exporters")],
            width=8,
        ),
        series(
            "Snapshots of flight recorders",
            "Alerts that named ranks of these exporters' nodes, by what became of their snapshot.",
            "none",
            Query(
                f"sum by (outcome) (increase(argus_exporter_snapshots_total{{{ONE}}}[1h]))",
                "{{outcome}}, last hour",
            ),
            Query(f"sum(argus_exporter_snapshots{{{ONE}}})", "kept"),
            width=8,
        ),
        series(
            "Disk for snapshots",
            "Size of the snapshots, of the exporter that keeps most.",
            "bytes",
            Query(f"max(argus_exporter_snapshots_bytes{{{ONE}}})", "largest"),
            width=8,
        ),
    ]


def _tracers() -> list[Draft]:
    lost = "max by (run_id, role, rank, source) (rank_source:argus_tracer_lost:ratio)"
    return [
        table(
            "Tracers that lose events",
            "Ranks and sources of which ARGUS sees less than it should; 1: the source is off.",
            "percentunit",
            Query(f"topk(50, {lost})"),
            columns=[Column("Value", "lost")],
            sort="lost",
        ),
        table(
            "Dearest tracers",
            f"The {MOST} sources that take most time in a training process, as a share of it. The budget "
            "for everything together is 1 %.",
            "percentunit",
            Query(
                f"topk({MOST}, max by (run_id, role, rank, source) "
                f"(rate(argus_tracer_cost_seconds_total{{{ONE}}}[5m])))"
            ),
            columns=[Column("Value", "share")],
            sort="share",
        ),
    ]


def _rules() -> list[Draft]:
    return [
        series(
            "Time of rule groups",
            "Seconds that each group of ARGUS's rules takes; together they should stay well below the "
            "scrape interval. Needs a Prometheus that scrapes itself.",
            "s",
            Query(
                f"max by (rule_group) (prometheus_rule_group_last_duration_seconds{{{GROUPS}}})",
                "{{rule_group}}",
            ),
        ),
        series(
            "Rules that fail or are missed",
            "Evaluations that failed or were left out, in the last five minutes. Neither should happen.",
            "none",
            Query(f"sum(increase(prometheus_rule_evaluation_failures_total{{{GROUPS}}}[5m]))", "failed"),
            Query(f"sum(increase(prometheus_rule_group_iterations_missed_total{{{GROUPS}}}[5m]))", "missed"),
        ),
        series(
            "Series in Prometheus",
            "Series in memory. Needs a Prometheus that scrapes itself.",
            "none",
            Query("max(prometheus_tsdb_head_series)", "series"),
        ),
        series(
            "Memory of Prometheus",
            "Resident memory. Needs a Prometheus that scrapes itself as job prometheus.",
            "bytes",
            Query('max(process_resident_memory_bytes{job="prometheus"})', "memory"),
        ),
    ]
