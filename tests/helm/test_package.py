"""The chart as it is shipped: versions, what is in the archive, what says where it comes from."""

from __future__ import annotations

import base64
import tarfile
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.support.chart import CHART, KUBERNETES, MAJORS, ROOT, check_strictly, package, render_archive


@pytest.fixture(scope="module")
def chart() -> dict[str, Any]:
    """Chart.yaml."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return loaded


def test_the_chart_installs_the_version_that_it_lies_beside(chart: dict[str, Any]) -> None:
    """Without a tag in the values the image of this very version is pulled."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["appVersion"] == project["version"]
    assert chart["annotations"]["artifacthub.io/license"] == project["license"]


def test_the_oldest_kubernetes_is_the_oldest_that_is_tried(chart: dict[str, Any]) -> None:
    """What Chart.yaml promises is what is held against schemas."""
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}-0"


def test_what_artifact_hub_shows_is_well_formed(chart: dict[str, Any]) -> None:
    """It reads them as YAML within YAML."""
    for change in yaml.safe_load(chart["annotations"]["artifacthub.io/changes"]):
        assert set(change) == {"kind", "description"}
    (image,) = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert image["image"].endswith(f":{chart['appVersion']}")


def test_the_chart_names_no_address_that_is_nobodys(chart: dict[str, Any]) -> None:
    """A project without a home says so by saying nothing; the icon is carried along, and is a picture."""
    assert not {"home", "sources"} & set(chart)
    kind, _, picture = chart["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ET.fromstring(base64.b64decode(picture)).tag == "{http://www.w3.org/2000/svg}svg"
    assert "example." not in str(chart)


@pytest.mark.parametrize("major", MAJORS)
def test_the_archive_renders_like_the_folder(major: int, tmp_path: Path) -> None:
    """Files that templates read are in it; what only tests need is not."""
    archive = package(major, tmp_path)
    with tarfile.open(archive) as tar:
        names = {name.removeprefix("gitlab-sync/") for name in tar.getnames()}
    assert {"values.schema.json", "README.md", "files/alerts.yaml", "files/dashboard.json"} <= names
    assert not [name for name in names if name.startswith("ci/") or name == "schema-definitions.yaml"]
    values = {"metrics": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}}
    check_strictly(render_archive(major, archive, values))
