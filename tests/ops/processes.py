"""The fairlead processes that the files under ops/ start, however they are started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.ops.reading import OPS, document, documents

COMPOSE = OPS / "compose" / "compose.yaml"
KUBERNETES = sorted(file for file in (OPS / "kubernetes").glob("*.yaml") if file.name != "kustomization.yaml")
KUSTOMIZATION = OPS / "kubernetes" / "kustomization.yaml"
UNITS = sorted((OPS / "systemd").glob("*.service"))
IMAGE = "fairlead:"


class Started(Struct, frozen=True, kw_only=True):
    """One process: where it is written, what it is told, and how long it may take to stop."""

    place: str
    words: tuple[str, ...]
    environment: dict[str, str]
    patience: float
    """How long its supervisor waits before it kills it, in seconds, without what happens before it is asked."""

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.words)}"


def unit(file: Path) -> dict[str, list[str]]:
    """The settings of a systemd unit; one may be said more than once."""
    settings: dict[str, list[str]] = {}
    for line in file.read_text("utf-8").splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def environment_file(file: Path) -> dict[str, str]:
    """The variables of a file for systemd."""
    lines = [line for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def workloads() -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Every container of the Kubernetes manifests, with its file and its pod."""
    for file in KUBERNETES:
        for manifest in documents(file):
            pod = manifest.get("spec", {}).get("template", {}).get("spec")
            for container in (pod or {}).get("containers", ()):
                yield file, pod, container


def started() -> list[Started]:
    """Every fairlead process."""
    return [*_by_systemd(), *_by_compose(), *_by_kubernetes()]


def _by_systemd() -> Iterator[Started]:
    for file in UNITS:
        settings = unit(file)
        (command,), (patience,) = settings["ExecStart"], settings["TimeoutStopSec"]
        program, *words = command.split()
        assert Path(program).name == "fairlead"
        environment: dict[str, str] = {}
        for name in settings["EnvironmentFile"]:
            environment |= environment_file(OPS / "systemd" / Path(name.replace("%i", "mail")).name)
        yield Started(place=file.name, words=tuple(words), environment=environment, patience=float(patience))


def _by_compose() -> Iterator[Started]:
    for name, service in document(COMPOSE)["services"].items():
        if service["image"].startswith(IMAGE):
            yield Started(
                place=f"compose.yaml {name}",
                words=tuple(service["command"]),
                environment={
                    key: re.sub(r"\$\{[^}]*\}", "secret", value) for key, value in service["environment"].items()
                },
                patience=float(service["stop_grace_period"].removesuffix("s")),
            )


def _by_kubernetes() -> Iterator[Started]:
    shared = {generator["name"]: generator for generator in document(KUSTOMIZATION)["configMapGenerator"]}
    for file, pod, container in workloads():
        if not container["image"].startswith(IMAGE):
            continue
        environment: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            environment |= dict(text.split("=", 1) for text in shared[source["configMapRef"]["name"]]["literals"])
        environment |= {each["name"]: each.get("value", "secret") for each in container.get("env", ())}
        pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert pause[0] == "sleep"
        yield Started(
            place=file.name,
            words=tuple(container["args"]),
            environment=environment,
            # Without a word of it, Kubernetes waits for 30 seconds.
            patience=float(pod.get("terminationGracePeriodSeconds", 30)) - float(pause[1]),
        )
