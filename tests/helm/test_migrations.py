"""The schema is there before pods need it: at a first install and an upgrade, under Argo CD, with --wait."""

from __future__ import annotations

from typing import Any

from tests.support.chart import Document, How, of_kind, one, render

UPGRADE = How(is_upgrade=True)
TRIAL: dict[str, Any] = {"database": {"url": "mysql://u:p@h/n"}}
EXISTING: dict[str, Any] = {"existingSecret": "s"}


def test_at_an_install_the_job_is_no_hook() -> None:
    """A pre-install hook comes before its Secret, a post-install one after pods that wait for it."""
    for values in (TRIAL, EXISTING):
        (job,) = of_kind(render(values), "Job")
        assert "annotations" not in job["metadata"]
        (volume,) = [
            each for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "migration"
        ]
        secret = volume["projected"]["sources"][0]["secret"]["name"]
        assert secret in {"s", *(each["metadata"]["name"] for each in of_kind(render(values), "Secret"))}


def test_a_migration_is_given_the_time_to_end_what_it_has_begun() -> None:
    """Thirty seconds, Kubernetes' default, killed it amid a file; and no autoscaler moves it meanwhile."""
    for how in (How(), UPGRADE):
        (job,) = of_kind(render(EXISTING, how), "Job")
        pod = job["spec"]["template"]
        assert pod["spec"]["terminationGracePeriodSeconds"] == job["spec"]["activeDeadlineSeconds"] == 1800
        assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_pods_wait_for_the_job_and_change_nothing() -> None:
    """No restart loop at a first install; the one who waits needs the database's address and nothing else."""
    (first,) = one(render(EXISTING), "Deployment")["spec"]["template"]["spec"]["initContainers"]
    assert first["args"] == ["migrate", "--wait", "600"]
    assert {each["name"] for each in first["env"]} == {"GITLAB_SYNC_DATABASE_URL_FILE"}
    assert "initContainers" not in str(
        one(render(EXISTING | {"migrations": {"waitSeconds": 0}}), "Deployment")
    )


def test_at_an_upgrade_the_job_comes_first() -> None:
    """It is a hook before everything else; the old pods still serve when it fails."""
    (job,) = of_kind(render(EXISTING, UPGRADE), "Job")
    annotations = job["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "pre-upgrade"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_at_an_upgrade_the_job_brings_what_the_release_may_lack() -> None:
    """A Secret that this very upgrade makes is not there yet: the hook has its own, made before it."""
    documents = render(TRIAL, UPGRADE)
    (job,) = of_kind(documents, "Job")
    secret = one(documents, "Secret", "-migrate")
    assert secret["stringData"] == {"DATABASE_URL": TRIAL["database"]["url"]}
    assert _weight(secret) < _weight(job)
    assert "hook-succeeded" in secret["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert secret["metadata"]["name"] in str(job["spec"]["template"]["spec"]["volumes"])


def test_the_job_needs_nothing_else_of_the_release() -> None:
    """Neither ServiceAccount nor ConfigMap, which an upgrade may be about to make."""
    (job,) = of_kind(
        render(EXISTING | {"partitions": {"p": {"project": 1, "target_branch": "main"}}}, UPGRADE), "Job"
    )
    spec = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    assert {volume["name"] for volume in spec["volumes"]} == {"tmp", "migration"}


def test_another_image_is_another_job() -> None:
    """A Job cannot be changed: whoever applies the chart without hooks gets a new one, or the same again."""
    names = [
        of_kind(render(EXISTING | {"image": {"tag": tag}}), "Job")[0]["metadata"]["name"]
        for tag in ("a", "b", "a")
    ]
    assert names[0] == names[2] != names[1]


def test_anything_else_in_its_template_is_another_job_too() -> None:
    """Labels and tolerations are as unchangeable as the image."""
    values: tuple[dict[str, Any], ...] = (
        {},
        {"podLabels": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
    )
    names = {of_kind(render(EXISTING | each), "Job")[0]["metadata"]["name"] for each in values}
    assert len(names) == len(values)


def test_each_pod_can_migrate_by_itself() -> None:
    """Mode initContainer: no Job; a database ahead of this image (a rollback) is left alone."""
    documents = render(EXISTING | {"migrations": {"mode": "initContainer"}})
    assert of_kind(documents, "Job") == []
    (first,) = one(documents, "Deployment")["spec"]["template"]["spec"]["initContainers"]
    assert first["args"] == ["migrate", "--if-needed"]


def test_migrations_may_use_a_user_of_their_own() -> None:
    """The service's own user need not be able to change the schema."""
    documents = render(EXISTING | {"migrations": {"existingSecret": "owner", "urlKey": "url"}})
    assert [each["kind"] for each in documents if "owner" in str(each)] == ["Job"]


def test_migrations_may_be_somebody_elses() -> None:
    """Mode none makes nothing and waits for nothing."""
    documents = render(EXISTING | {"migrations": {"mode": "none"}})
    assert of_kind(documents, "Job") == []
    assert "initContainers" not in one(documents, "Deployment")["spec"]["template"]["spec"]


def _weight(document: Document) -> int:
    return int(document["metadata"]["annotations"]["helm.sh/hook-weight"])
