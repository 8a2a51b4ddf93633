"""Thresholds: every number that decides has a name, an explanation, and can be changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from argus import cli, ruleset
from argus.ruleset import marks, shipped, thresholds

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(
    r"(?<![\w.:$])(?:(?:[0-9]+(?:ms|[smhdwy]))+|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![\w.:])"
)
STRUCTURE = (
    r"quantile by \([^)]*\) \(\s*0\.(5|25|75)\b",  # median and quartiles
    r"(:count|count by \([^)]*\) \([^)]*\)) (==|>) 2\b",  # two peers, more than two
    r"\b2 \* \S+:q25 - \S+:median",  # of two, the smaller
    r"\^ 2\b",  # formulas of variances
    r"\b1\.4826\b",  # standard deviation of a normal distribution against its median deviation
    r"\b1e-6\b",  # no division by zero
    r"\b60 \* rate\(",  # a minute
)
"""Numbers that say what is computed, not where it is too much; 0 and 1 are others."""


def test_marks_and_table_agree() -> None:
    found: dict[str, set[str]] = {}
    for text in ruleset.load().values():
        for name, value in marks.marks(text):
            found.setdefault(name, set()).add(value)
    assert found == {name: {one.default} for name, one in thresholds.table().items()}


def test_every_number_that_decides_is_marked() -> None:
    unmarked = []
    for text in ruleset.load().values():
        for group in shipped.groups(text):
            for rule in group["rules"]:
                name = rule.get("record", rule.get("alert"))
                left = re.sub(r'"(?:\\.|[^"\\])*"', '""', rule["expr"])
                left = re.sub(r"[^\n]*# threshold: \w+", lambda m: NUMBER.sub("", m[0], count=0), left)
                for pattern in STRUCTURE:
                    left = re.sub(pattern, " ", left)
                numbers = set(NUMBER.findall(re.sub(r"(?m)#.*$", "", left))) - {"0", "1"}
                unmarked += [(name, number) for number in sorted(numbers)]
                unmarked += [
                    (name, key)
                    for key in ("for", "keep_firing_for")
                    if key in rule and "# threshold: " not in rule[key]
                ]
    assert not unmarked


def test_a_marked_line_holds_no_other_number() -> None:
    """Otherwise the check above would let that one pass."""
    for file, text in ruleset.load().items():
        for line in re.findall(r"(?m)^(.*)# threshold: \w+", text):
            code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
            assert len([n for n in NUMBER.findall(code) if n not in ("0", "1")]) <= 1, f"{file}: {line}"


def test_the_documentation_shows_the_table() -> None:
    document = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    assert thresholds.markdown() in document, "put what `argus rules --thresholds markdown` prints there"


@pytest.mark.parametrize("one", thresholds.table().values(), ids=lambda one: one.name)
def test_defaults_are_within_their_own_range_and_explained(one: thresholds.Threshold) -> None:
    assert one.check(one.default) == one.default
    assert min(len(one.where), len(one.meaning), len(one.why)) > 5


def rules(options: ruleset.Options) -> dict[tuple[str, str], dict[str, str]]:
    return {
        (rule.get("record", rule.get("alert")), rule.get("labels", {}).get("severity", "")): rule
        for text in ruleset.render_files(options).values()
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
    }


def test_a_chosen_value_lands_wherever_the_threshold_stands_and_nowhere_else() -> None:
    shipped_rules, chosen = rules(ruleset.Options()), rules(ruleset.Options(thresholds={"work_ratio": "1.7"}))
    changed = {name for name, _ in chosen if chosen[name, _] != shipped_rules[name, _]}
    assert changed == {
        "rank:argus_busy_worst:ratio",
        "role:argus_work_skew_seconds:max",
        "role_work:argus_work_skew:ratio",
    }
    for name in changed:
        assert chosen[name, ""]["expr"] == shipped_rules[name, ""]["expr"].replace(
            "1.2 # threshold: work_ratio", "1.7 # threshold: work_ratio"
        )


@pytest.mark.parametrize(
    ("scrape", "scale", "shown"), [(15.0, 1.0, "50s"), (30.0, 1.0, "50s"), (5.0, 0.1, "5s")]
)
def test_a_chosen_duration_is_taken_as_it_is(scrape: float, scale: float, shown: str) -> None:
    """A default of a minute or less counts scrapes and is scaled with them; a choice is a choice."""
    options = ruleset.Options(scrape, scale, thresholds={"hung_for": "50s", "spike_period": "50s"})
    found = rules(options)
    assert found["ArgusRunHung", "critical"]["for"] == shown
    assert f"[{shown}] # threshold: spike_period" in found["ArgusIterationJitter", "warning"]["expr"]


def test_what_is_as_shipped_is_no_change() -> None:
    assert ruleset.Options(thresholds={"work_ratio": "1.2"}).thresholds == {}


def test_a_file_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = tmp_path / "thresholds.yml"
    chosen.write_text("link_ratio: 2\nwork_ratio: 1.4 # MoE\nlink_for: 4m\n")
    folder = tmp_path / "rules"
    arguments = [
        "rules",
        "--thresholds-file",
        str(chosen),
        "--set",
        "work_ratio=1.5",
        "--output",
        str(folder),
    ]
    assert cli.main(arguments) == 0
    assert "with link_for=4m, link_ratio=2, work_ratio=1.5" in capsys.readouterr().err
    assert (folder / "argus-link.yml").read_text().splitlines()[:3] == [
        "# Thresholds that differ from the defaults:",
        "#   link_for: 4m (default 3m)",
        "#   link_ratio: 2 (default 1.5)",
    ]
    assert (folder / "argus-jit.yml").read_text().startswith("groups:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "work_rato=1.3"], "there is no threshold 'work_rato'; did you mean work_ratio"),
        (["--set", "xyzzy=1"], "there is no threshold 'xyzzy'; argus rules --thresholds lists them"),
        (["--set", "work_ratio"], "threshold 'work_ratio': write it as name=value"),
        (["--set", "work_ratio=high"], "threshold work_ratio: 'high' is not a number; write it like 1.2"),
        (["--set", "work_ratio=nan"], "is not a number"),
        (["--set", "work_ratio=-2"], "is not a number"),
        (["--set", "work_ratio=0.9"], "threshold work_ratio: 0.9 is out of range; take 1 to 100"),
        (["--set", "hung_for=5"], "threshold hung_for: '5' is not a duration; write it like 1m"),
        (["--set", "hung_for=100ms"], "is out of range; take 1 s to"),
        (["--thresholds-file", "missing.yml"], "the thresholds missing.yml can't be read"),
    ],
)
def test_a_wrong_choice_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rules", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    ["- work_ratio", "work_ratio: [1]", "work_ratio: true", "a: b: c", "1: 2"],
)
def test_a_file_of_something_else_is_refused(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thresholds.yml"
    file.write_text(content)
    assert cli.main(["rules", "--thresholds-file", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--thresholds"]) == 0
    text = capsys.readouterr().out
    assert all(f"{one.name} = {one.default}\n" in text for one in thresholds.table().values())
