"""Which file of a project is its CI configuration, as GitLab says it."""

from __future__ import annotations

import pytest

from gitlab_sync.composing import own_ci_files
from gitlab_sync.model import ProjectId, ProjectInfo


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("", ()),
        ("ci/build.yml", ("ci/build.yml",)),
        (" /ci/build.yml ", ("ci/build.yml",)),
        ("./ci/build.yml", ("ci/build.yml",)),
        ("ci//build.yml", ("ci/build.yml",)),
        ("//ci/./other/../build.yml", ("ci/build.yml",)),
        ("./ci/own.yml@group/own", ("ci/own.yml",)),
        ("/", ()),
        ("https://example.com/ci.yml", ()),
        ("ci.yml@group/templates", ()),
        ("ci.yml@group/templates:main", ()),
        ("ci/own.yml@group/own", ("ci/own.yml",)),
        ("ci/own.yml@group/own:main", ("ci/own.yml",)),
    ],
)
def test_a_ci_file_of_this_project_is_found_however_it_is_written_and_no_other(
    setting: str, found: tuple[str, ...]
) -> None:
    """An address or another project's file is not for a request to edit; a request writes one plain way."""
    project = ProjectInfo(ProjectId(1), "group/own", "main", "merge", "never", setting)
    assert own_ci_files(project) == found
