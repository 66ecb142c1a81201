"""The tables of the database of runs: ``MIGRATIONS[n]`` brings version n to n + 1."""

MIGRATIONS = (
    """
    CREATE TABLE runs (
        key TEXT PRIMARY KEY,
        verb TEXT NOT NULL,
        started REAL NOT NULL,
        seconds REAL NOT NULL,
        exit_code INTEGER NOT NULL,
        board TEXT NOT NULL,
        git TEXT NOT NULL,
        options TEXT NOT NULL,
        versions TEXT NOT NULL,
        result BLOB NOT NULL
    );
    CREATE INDEX runs_by_time ON runs (started);
    CREATE TABLE models (
        run TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        unit TEXT,
        ticks INTEGER,
        ram_bytes INTEGER,
        flash_bytes INTEGER,
        PRIMARY KEY (run, name)
    ) WITHOUT ROWID;
    CREATE INDEX models_by_digest ON models (sha256);
    CREATE INDEX models_by_name ON models (name);
    """,
)
