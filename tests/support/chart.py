"""Renders the chart with real Helm 4 and 3, offline, and holds the outcome against Kubernetes' own schemas.

`.ci/install-helm.sh` puts both programs, pinned by checksum, into the user's cache once. Helm's own folders
are temporary, so nothing of this user's is read or written.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from gitlab_sync.sandbox.database.cache import cache_folder, exclusive, substitute_folder, writable
from tests.support.chart_kinds import check_custom

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm"
MODES: Final = tuple(sorted(CHART.glob("ci/*-values.yaml")))
MAJORS: Final = (4, 3)
# As far back as the chart's `kubeVersion`, as far ahead as schemas are known.
KUBERNETES: Final = tuple(f"1.{minor}.0" for minor in range(28, 38))
NEWEST: Final = KUBERNETES[-1]

Document = dict[str, Any]


class Refused(Exception):
    """Helm would not render; the text is what it said."""


@dataclass(frozen=True, slots=True)
class How:
    """With which Helm, for which Kubernetes, as an install or an upgrade."""

    major: int = 4
    kubernetes: str = NEWEST
    is_upgrade: bool = False


def render(values: Mapping[str, Any] | Path, how: How = How()) -> list[Document]:
    """Every manifest of `helm template`. Raises Refused."""
    upgrade = ["--is-upgrade"] if how.is_upgrade else []
    arguments = ("template", "rel", str(CHART), "--kube-version", how.kubernetes, *upgrade)
    given = values.read_text(encoding="utf-8") if isinstance(values, Path) else json.dumps(values)
    text = _rendered(how.major, arguments, given)
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def package(major: int, folder: Path) -> Path:
    """The chart as an archive in `folder`."""
    _run(major, ["package", str(CHART), "--destination", str(folder)], None)
    (archive,) = folder.glob("gitlab-sync-*.tgz")
    return archive


def render_archive(major: int, archive: Path, values: Mapping[str, Any]) -> list[Document]:
    """Every manifest of an archive. Raises Refused."""
    text = run_helm(major, ["template", "rel", str(archive), "--kube-version", NEWEST], values)
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def run_helm(major: int, arguments: Iterable[str], values: Mapping[str, Any] | Path) -> str:
    """What Helm prints when it is given `values` by a file. Raises Refused with what it says instead."""
    given = values.read_text(encoding="utf-8") if isinstance(values, Path) else json.dumps(values)
    return _run(major, arguments, given)  # as JSON, since a YAML writer's `n` is Helm's false


@cache
def _rendered(major: int, arguments: tuple[str, ...], values: str) -> str:
    """What was rendered once; several tests look at the same modes."""
    return _run(major, arguments, values)


def _run(major: int, arguments: Iterable[str], values: str | None) -> str:
    with tempfile.TemporaryDirectory(prefix="gitlab-sync-helm-") as home:
        path = Path(home, "values.yaml")
        path.write_text(values or "", encoding="utf-8")
        done = subprocess.run(
            [helm_program(major), *arguments, *(["--values", str(path)] if values is not None else [])],
            capture_output=True,
            text=True,
            check=False,
            env=_environment(home),
        )
    if done.returncode != 0:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def check_strictly(documents: Iterable[Document], kubernetes: str = NEWEST) -> None:
    """Fail on a field that this Kubernetes, or the custom resource's definition, does not know."""
    for document in documents:
        if not check_custom(document):
            _validator(kubernetes, document["apiVersion"], document["kind"]).validate(document)


def of_kind(documents: Iterable[Document], kind: str) -> list[Document]:
    """Those of one kind."""
    return [document for document in documents if document["kind"] == kind]


def one(documents: Iterable[Document], kind: str, suffix: str = "") -> Document:
    """The only one of a kind whose name ends so after the release's own."""
    (found,) = (
        each
        for each in of_kind(documents, kind)
        if re.fullmatch(rf".*gitlab-sync{suffix}", each["metadata"]["name"])
    )
    return found


def pod_specs(documents: Iterable[Document]) -> list[Document]:
    """The pod of everything that makes pods, as {metadata, spec}."""
    return [pod for document in documents if (pod := _pod(document)) is not None]


def containers(pod: Document) -> list[Document]:
    """All containers of a pod that are the chart's own image, those that come first included."""
    spec = pod["spec"]
    return [
        one for one in [*spec.get("initContainers", []), *spec["containers"]] if "gitlab-sync" in one["image"]
    ]


@cache
def _schemas() -> Path:
    """Where the package kubernetes-validate keeps the schemas; nothing else of it is needed."""
    named = files("kubernetes-validate") or []
    return next(Path(str(one.locate())).parents[1] for one in named if one.name == "_definitions.json")


@cache
def _validator(kubernetes: str, api: str, kind: str) -> Draft202012Validator:
    """The validator of one kind, kept: reading the schemas again for each document takes most of the time."""
    group, _, version = api.rpartition("/")
    stem = "-".join(filter(None, (kind.lower(), group.partition(".")[0], version)))
    schema = json.loads(
        (_schemas() / f"v{kubernetes}-local-strict" / f"{stem}.json").read_text(encoding="utf-8")
    )
    return Draft202012Validator(schema, registry=_definitions(kubernetes))


@cache
def _definitions(kubernetes: str) -> Registry[Any]:
    text = (_schemas() / f"v{kubernetes}-local-strict" / "_definitions.json").read_text(encoding="utf-8")
    return Resource.from_contents(json.loads(text), DRAFT202012) @ Registry()


@cache
def helm_program(major: int) -> str:
    """The path of this Helm, installed if it is not there yet."""
    folder = cache_folder(os.environ) / "helm"
    if not writable(folder):
        folder = substitute_folder() / "helm"
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / ".lock"):
        done = subprocess.run(
            ["bash", str(ROOT / ".ci/install-helm.sh"), str(folder), str(major)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"Helm {major} cannot be installed:\n{done.stderr}"
    return done.stdout.strip()


def _pod(document: Document) -> Document | None:
    match document["kind"]:
        case "Deployment" | "Job":
            template: Document = document["spec"]["template"]
            return template
        case "CronJob":
            return _pod({"kind": "Job", **document["spec"]["jobTemplate"]})
        case "Pod":
            return document
        case _:
            return None


def _environment(home: str) -> dict[str, str]:
    folders = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
    return {"PATH": os.environ["PATH"], "HOME": home, **folders}
