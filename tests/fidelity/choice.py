"""Which of python-gitlab's functional tests say something about the simulator, and which do not.

A file runs whole, because its tests build on one another; what is left out is run too and not counted. A test
that passes without having asked the instance anything is left out as well.
"""

from __future__ import annotations

FEWEST = 25

FILES = (
    "test_merge_requests.py",
    "test_repository.py",
    "test_branches.py",
    "test_lazy_objects.py",
    "test_projects.py",
    "test_gitlab.py",
    "test_current_user.py",
)

# File -> reason -> tests.
_LEFT_OUT: dict[str, dict[str, tuple[str, ...]]] = {
    "test_merge_requests.py": {
        "a paid plan": (
            "test_merge_requests_list_approver_ids",
            "test_project_approvals",
            "test_project_merge_request_approval_rules",
        ),
    },
    "test_projects.py": {
        "no part of what is simulated": (
            "test_project_avatar_upload",
            "test_project_badges",
            "test_project_custom_attributes",
            "test_project_environments",
            "test_project_events",
            "test_project_file_uploads",
            "test_project_forks",
            "test_project_housekeeping",
            "test_project_label_promotion",
            "test_project_milestone_promotion",
            "test_project_pages",
            "test_project_pages_domains",
            "test_project_remote_mirrors",
            "test_project_pull_mirrors",
            "test_project_services",
            "test_project_stars",
            "test_project_storage",
            "test_project_tags",
            "test_project_triggers",
            "test_project_wiki",
            "test_project_groups_list",
            "test_project_transfer",
        ),
        "a paid plan": (
            "test_project_external_status_check_create",
            "test_project_external_status_check_list",
        ),
        "passes without avatars too": ("test_project_avatar_remove",),
        "switched off by its authors": ("test_project_boards",),
    },
    "test_gitlab.py": {
        "asks the instance nothing": ("test_no_custom_session", "test_custom_session"),
        "no part of what is simulated": (
            "test_broadcast_messages",
            "test_markdown",
            "test_markdown_in_project",
            "test_sidekiq_queue_metrics",
            "test_sidekiq_process_metrics",
            "test_sidekiq_job_stats",
            "test_sidekiq_compound_metrics",
            "test_template_dockerfile",
            "test_template_gitignore",
            "test_template_gitlabciyml",
            "test_template_license",
            "test_hooks",
            "test_notification_settings",
            "test_search",
            "test_user_activities",
            "test_events",
            "test_list_default_warning",
            "test_list_page_nowarning",
            "test_list_all_false_nowarning",
            "test_list_all_true_nowarning",
            "test_list_iterator_true_nowarning",
        ),
        "a paid plan": ("test_geo_nodes", "test_gitlab_license"),
        "switched off by its authors": ("test_features",),
    },
    "test_current_user.py": {
        "no part of what is simulated": (
            "test_current_user_email",
            "test_current_user_gpg_keys",
            "test_current_user_ssh_keys",
            "test_current_user_status",
        ),
    },
}


def is_usable(file: str, name: str) -> bool:
    """Say whether a test, named with its parameters, is counted."""
    left_out = _LEFT_OUT.get(file, {}).values()
    return not any(name.partition("[")[0] in names for names in left_out)
