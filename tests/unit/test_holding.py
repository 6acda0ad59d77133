"""What a refusal of GitLab blocks a batch with."""

from __future__ import annotations

import pytest

from gitlab_sync.errors import GitLabRefused
from gitlab_sync.gitlab_errors import GitLabCall
from gitlab_sync.holding import meaning_of
from gitlab_sync.verdict import BlockReason


@pytest.mark.parametrize(
    ("call", "status", "expected"),
    [
        (GitLabCall.MERGE_REQUEST, 401, BlockReason.ACCESS_REFUSED),
        (GitLabCall.CREATE_COMMIT, 403, BlockReason.ACCESS_REFUSED),
        (GitLabCall.BRANCH, 404, BlockReason.ACCESS_REFUSED),
        (GitLabCall.PROJECT, 404, BlockReason.PROJECT_GONE),
        (GitLabCall.PROJECT, 401, BlockReason.ACCESS_REFUSED),
        (GitLabCall.OPEN_MERGE_REQUEST, 409, BlockReason.PUBLISH_REFUSED),
        (GitLabCall.OPEN_MERGE_REQUEST, 422, BlockReason.PUBLISH_REFUSED),
    ],
)
def test_a_refusal_is_told_by_its_type(call: GitLabCall, status: int, expected: BlockReason) -> None:
    """The project gone, the token, or what we asked for: three different people mend these."""
    assert meaning_of(GitLabRefused(call, status, "no")) is expected
