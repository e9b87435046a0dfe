"""systemd units, the compose file, the image and the Kubernetes manifests name only what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairlead._version import __version__
from fairlead.app.config import load
from fairlead.app.config_keys import KEYS
from fairlead.cli.program import program
from fairlead.server.docs.pages import ENDPOINTS
from tests.ops.metrics import unknown_in
from tests.ops.processes import COMPOSE, KUBERNETES, KUSTOMIZATION, UNITS, Started, started, unit, workloads
from tests.ops.reading import OPS, RULES, alerts, commands_in, document, documents
from tests.servers.prometheus import promtool_or_skip

PROMETHEUS = OPS / "prometheus" / "prometheus.yml"
DOCKERFILE = OPS / "Dockerfile"
SERVICES: dict[str, Any] = document(COMPOSE)["services"]
PORT = KEYS["port"].default
PATHS = {endpoint.path for endpoint in ENDPOINTS}
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.-]+)?")
VARIABLES = {key.variable for key in KEYS.values()} | {"FAIRLEAD_CONFIG"}
DRAINED = [process for process in started() if process.words[0] in ("serve", "worker")]

each_process = pytest.mark.parametrize("process", started(), ids=str)


def images() -> list[str]:
    """Every image that anything is run from."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    composed = [service["image"] for service in SERVICES.values()]
    return sorted({*bases, *composed, *(container["image"] for _, _, container in workloads())})


def test_all_kinds_of_processes_are_found() -> None:
    commands = [(process.place, process.words[0]) for process in started()]
    assert commands == [
        ("fairlead-server.service", "serve"),
        ("fairlead-worker@.service", "worker"),
        ("compose.yaml migrate", "migrate"),
        ("compose.yaml server", "serve"),
        ("compose.yaml worker", "worker"),
        ("migrate.yaml", "migrate"),
        ("server.yaml", "serve"),
        ("worker.yaml", "worker"),
    ]


@each_process
def test_every_command_flag_variable_and_value_exists(process: Started) -> None:
    _, bound, _ = program().parse_args(list(process.words))[:3]
    flags = bound.arguments.get("settings", {})
    ours = {name: value for name, value in process.environment.items() if name.startswith("FAIRLEAD_")}
    # Raises for a variable, a flag or a value that there is not.
    load(flags, ours, OPS)


def test_what_does_not_exist_is_noticed() -> None:
    for words in (["serve", "--hots", "x"], ["worker", "builtin", "--leese-seconds", "1"], ["sevre"]):
        with pytest.raises(Exception, match=words[-2] if len(words) > 1 else "sevre"):
            _, bound, _ = program().parse_args(words)[:3]
            load(bound.arguments.get("settings", {}), {}, OPS)
    with pytest.raises(ValueError, match="FAIRLEAD_STOER"):
        load({}, {"FAIRLEAD_STOER": "memory://"}, OPS)


@pytest.mark.parametrize(
    "file", [file for file in sorted(OPS.rglob("*")) if file.is_file()], ids=lambda file: file.name
)
def test_every_variable_that_is_mentioned_exists(file: Path) -> None:
    mentioned = set(re.findall(r"\bFAIRLEAD_[A-Z_]+", file.read_text("utf-8")))
    assert mentioned <= VARIABLES


@pytest.mark.parametrize("process", DRAINED, ids=str)
def test_whoever_stops_a_process_waits_longer_than_it_may_drain(process: Started) -> None:
    drain = float(process.environment.get("FAIRLEAD_DRAIN_SECONDS", KEYS["drain_seconds"].default))
    assert process.patience > drain


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name)
def test_a_unit_has_its_process_alone_asked_to_stop(file: Path) -> None:
    settings = unit(file)
    assert (settings["KillMode"], settings["KillSignal"]) == (["mixed"], ["SIGTERM"])
    assert settings["Restart"] == ["always"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name)
def test_systemd_understands_a_unit(file: Path, tmp_path: Path) -> None:
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={shutil.which('true')}", file.read_text("utf-8"))
    copy = tmp_path / file.name
    copy.write_text(re.sub(r"(?m)^User=.*$", "User=root", text))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60
    )
    # It looks at the machine's other units, too, and tells of those.
    assert [line for line in ended.stderr.splitlines() if file.name in line] == []


@pytest.mark.parametrize("image", images())
def test_every_image_is_pinned(image: str) -> None:
    assert PINNED.fullmatch(image)
    if image.startswith("fairlead:"):
        assert image == f"fairlead:{__version__}"


def test_the_image_is_made_of_what_there_is() -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert f"fairlead[server,redis,postgres,client,fast]=={__version__}" in text
    assert {"server", "redis", "postgres", "client", "fast"} <= _extras()
    assert 'ENTRYPOINT ["fairlead"]' in text and 'CMD ["serve"]' in text and f"EXPOSE {PORT}" in text
    (copied,) = re.findall(r"^COPY ((?!src)(?!--).+) \./$", text, re.MULTILINE)
    assert [name for name in copied.split() if not (OPS.parent / name).exists()] == []


def _extras() -> set[str]:
    import tomllib

    project = tomllib.loads((OPS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_ports_and_paths_are_those_of_the_server() -> None:
    server = SERVICES["server"]
    assert server["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    (checked,) = re.findall(rf"http://127\.0\.0\.1:{PORT}(/\w+)", " ".join(server["healthcheck"]["test"]))
    probes = [
        (container["name"], kind, container[kind]["httpGet"])
        for _, _, container in workloads()
        for kind in ("livenessProbe", "readinessProbe")
        if container["image"].startswith("fairlead:") and kind in container
    ]
    assert [(name, kind) for name, kind, _ in probes] == [("server", "livenessProbe"), ("server", "readinessProbe")]
    asked = {probe["path"] for _, _, probe in probes} | {
        checked,
        document(PROMETHEUS)["scrape_configs"][0]["metrics_path"],
    }
    assert asked == {"/healthz", "/readyz", "/metrics"} <= PATHS
    served = next(process for process in started() if process.place == "server.yaml")
    assert served.words[served.words.index("--port") + 1] == str(PORT)
    for _, _, container in workloads():
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        assert container["name"] != "server" or ports == {"http": PORT}


def test_names_that_one_part_uses_for_another_are_there() -> None:
    """Hosts in URLs, what a service waits for, config maps, claims and what a Service selects."""
    manifests = [manifest for file in KUBERNETES for manifest in documents(file)]
    services = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Service"}
    for process in started():
        if not process.place.endswith(".service"):
            hosts = set(re.findall(r"(?:redis://|@)([a-z]+)", " ".join(process.environment.values())))
            assert hosts <= (set(SERVICES) if "compose" in process.place else services)
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)
    labels = [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests
        if "template" in manifest.get("spec", {})
    ]
    for manifest in manifests:
        if manifest["kind"] == "Service":
            assert manifest["spec"]["selector"] in labels
    scraped = [job["dns_sd_configs"][0] for job in document(PROMETHEUS)["scrape_configs"]]
    assert [(each["names"], each["port"]) for each in scraped] == [(["server"], PORT), (["worker"], 8421)]
    assert {"server", "worker"} <= services & set(SERVICES)
    assert [process.place for process in started() if "--metrics-port 8421" in str(process)] == [
        "compose.yaml worker",
        "worker.yaml",
    ]
    resources = document(KUSTOMIZATION)["resources"]
    assert sorted(resources) == sorted(file.name for file in KUBERNETES if not file.name.startswith("keda-"))


def test_what_scales_the_workers_finds_them() -> None:
    manifests = [manifest for file in KUBERNETES for manifest in documents(file)]
    there = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    scaled = [manifest["spec"] for manifest in manifests if manifest["kind"] == "ScaledObject"]
    for spec in scaled:
        assert ("Deployment", spec["scaleTargetRef"]["name"]) in there
        for trigger in spec["triggers"]:
            (host,) = re.findall(r"http://([\w-]+):", " ".join(trigger["metadata"].values()))
            assert ("Service", host) in there
            assert unknown_in(trigger["metadata"].get("query", "vector(0)")) == set()
    assert scaled


def test_no_service_of_kubernetes_makes_a_variable_that_looks_like_a_setting() -> None:
    manifests = [manifest for file in KUBERNETES for manifest in documents(file)]
    services = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Service"]
    assert [name for name in services if name.startswith("fairlead")] == []
    assert all(pod["enableServiceLinks"] is False for _, pod, _ in workloads())


def test_no_container_of_kubernetes_may_do_more_than_it_must() -> None:
    for _, pod, container in workloads():
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_prometheus_understands_its_configuration_and_finds_the_rules() -> None:
    ended = subprocess.run(
        [promtool_or_skip(), "check", "config", "--syntax-only", str(PROMETHEUS)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert document(PROMETHEUS)["rule_files"] == [RULES.name]
    mounted = [volume.split(":")[:2] for volume in SERVICES["prometheus"]["volumes"] if volume.startswith("..")]
    assert [(COMPOSE.parent / source).resolve() for source, _ in mounted] == [PROMETHEUS, RULES]
    generated = next(each for each in document(KUSTOMIZATION)["configMapGenerator"] if each["name"] == "prometheus")
    assert [(KUSTOMIZATION.parent / file).resolve() for file in generated["files"]] == [PROMETHEUS, RULES]
    secret = document(PROMETHEUS)["scrape_configs"][0]["authorization"]["credentials_file"]
    assert secret == "/run/secrets/fairlead-key" and SERVICES["prometheus"]["secrets"] == ["fairlead-key"]


SAID = [(alert["alert"], alert["annotations"]["description"]) for alert in alerts()] + [
    (name, (OPS.parent / "docs" / "how-to" / name).read_text("utf-8")) for name in ("alerts.md", "run-in-production.md")
]


def test_commands_are_found_however_they_are_written() -> None:
    text = "`fairlead\nstats` or:\n\n  fairlead keys create 'a'\nkubectl x -- fairlead top\n`d run --rm server list`"
    assert [words[0] for words in commands_in(text)] == ["stats", "keys", "top", "list"]


@pytest.mark.parametrize(("place", "text"), SAID, ids=[place for place, _ in SAID])
def test_every_command_that_is_advised_exists_with_its_flags(place: str, text: str) -> None:
    for words in commands_in(text):
        command = " ".join(words)
        path, apps, rest = program().parse_commands(words)
        assert path, command
        # A command that has commands of its own does nothing by itself.
        assert apps[-1].default_command is not None, command
        known = {name for argument in apps[-1].assemble_argument_collection() for name in argument.names}
        known |= {key.flag for key in KEYS.values()} if "--[KEYWORD]" in known else set()
        assert [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known] == [], command
