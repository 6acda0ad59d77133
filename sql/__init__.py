"""Every table and every statement of gitlab-sync, with the loader that hands them out by name."""
