"""Documents link to what exists, and the example deployments fit the exporter."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus.cli import COMMANDS, main
from argus.exporter.command import add_arguments
from argus.exporter.web.server import DEFAULT_PORT

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "docs", "runbooks", "benchmarks")
DOCUMENTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
EXAMPLES = ROOT / "examples"
MANIFESTS = sorted(EXAMPLES.glob("kubernetes-*.yaml"))


def anchors(document: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_leads_to_every_document() -> None:
    linked = set(re.findall(r"\]\((docs/[^)#\s]+)", (ROOT / "README.md").read_text("utf-8")))
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Subcommand and arguments of every call of argus in a document, as a shell would read them."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    calls = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    calls += [span.replace("\n", " ") for span in re.findall(r"(?<!`)`(argus [^`]+)`", text)]
    for call in calls:
        found = re.search(r"(?:^|[\s(]|&& )argus ([a-z]+)((?: [^#|>&;)…\n]*)?)", call)
        if found and found[1] in COMMANDS:
            yield found[1], shlex.split(found[2].replace("$run_id", "81723").replace("$rank", "3"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_commands_have_the_flags_that_documents_give_them(document: Path) -> None:
    for name, arguments in commands(document.read_text("utf-8")):
        parser = ArgumentParser()
        importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
        known = set(re.findall(r"(?<![\w-])--?[a-z][\w.-]*", parser.format_help()))
        flags = {argument.partition("=")[0] for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert flags <= known, f"argus {name} {shlex.join(arguments)}"


def test_the_reference_is_up_to_date() -> None:
    command = [sys.executable, ROOT / "scripts" / "reference", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def pods(manifest: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(manifest.read_text("utf-8")):
        if "template" in document["spec"]:
            yield document["spec"]["template"]["spec"]


def parse(flags: list[str]) -> None:
    parser = ArgumentParser()
    add_arguments(parser)
    parser.parse_args(flags)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_pods_run_an_exporter_that_prometheus_finds(manifest: Path) -> None:
    (pod,) = pods(manifest)
    containers = [*pod["initContainers"], *pod["containers"]]
    (exporter,) = (each for each in containers if each["command"][:2] == ["argus", "exporter"])
    parse(exporter["command"][2:])
    # As examples/prometheus.yml looks for it.
    assert exporter["ports"] == [{"name": "argus", "containerPort": DEFAULT_PORT}]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_whoever_has_a_segments_directory_mounts_it(manifest: Path) -> None:
    (pod,) = pods(manifest)
    found = []
    for container in [*pod["initContainers"], *pod["containers"]]:
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        environment = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
        assert environment.get("ARGUS_DIR", mounts["argus"]) == mounts["argus"]
        assert set(mounts) <= {volume["name"] for volume in pod["volumes"]}
        found.append(mounts["argus"])
    assert len(set(found)) == 1


def test_examples_reach_those_without_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(path.name for path in EXAMPLES.iterdir())
    assert main(["examples"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == names
    assert all(len(line.split()) > 2 for line in listed)
    assert main(["examples", "alertmanager.yml"]) == 0
    assert capsys.readouterr().out == (EXAMPLES / "alertmanager.yml").read_text("utf-8")
    (tmp_path / "prometheus.yml").write_text("mine")
    assert main(["examples", "--output", str(tmp_path)]) == 0
    assert f"{tmp_path}/prometheus.yml is there already, and stays" in capsys.readouterr().err
    assert (tmp_path / "prometheus.yml").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert main(["examples", "nothing.yml"]) == 2
    assert "there is no 'nothing.yml'; there are alertmanager.yml, " in capsys.readouterr().err
    assert main(["examples", "--output", str(tmp_path / "argus.tmpl")]) == 2


def test_the_unit_starts_the_exporter() -> None:
    unit = EXAMPLES / "argus-exporter.service"
    (start,) = re.findall(r"^ExecStart=(.+)$", unit.read_text("utf-8"), re.MULTILINE)
    command, subcommand, *flags = shlex.split(start)
    assert (Path(command).name, subcommand) == ("argus", "exporter")
    assert flags == ["$ARGUS_EXPORTER_OPTIONS"]
    (options,) = re.findall(r'^# ARGUS_EXPORTER_OPTIONS="([^"]*)"', unit.read_text("utf-8"), re.MULTILINE)
    parse(shlex.split(options))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    command = tmp_path / "argus"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / "argus-exporter.service"
    text = (EXAMPLES / "argus-exporter.service").read_text("utf-8")
    unit.write_text(text.replace("/usr/local/bin/argus ", f"{command} "))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
