"""The engine of gitlab-sync: everything between the HTTP edge (`hooks`) and the database (`sql`)."""
