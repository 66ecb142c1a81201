"""What the server keeps: rows of the database, files, settings."""
