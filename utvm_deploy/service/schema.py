"""The tables of the server's database: ``MIGRATIONS[n]`` brings version n to n + 1."""

MIGRATIONS = (
    """
    CREATE TABLE models (
        sha256 TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        size INTEGER NOT NULL,
        uploaded REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX models_by_time ON models (uploaded);
    CREATE TABLE jobs (
        key TEXT PRIMARY KEY,
        verb TEXT NOT NULL,
        board TEXT NOT NULL,
        options TEXT NOT NULL,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        started REAL,
        finished REAL,
        attempt INTEGER NOT NULL DEFAULT 0,
        exit_code INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        worker TEXT NOT NULL DEFAULT '',
        what TEXT NOT NULL DEFAULT '',
        done INTEGER NOT NULL DEFAULT 0,
        total INTEGER NOT NULL DEFAULT 0,
        run TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    CREATE INDEX jobs_by_time ON jobs (created);
    CREATE INDEX jobs_by_state ON jobs (state, created);
    CREATE INDEX jobs_by_board ON jobs (board, created);
    CREATE TABLE job_models (
        job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
        place INTEGER NOT NULL,
        sha256 TEXT NOT NULL REFERENCES models (sha256),
        PRIMARY KEY (job, place)
    ) WITHOUT ROWID;
    CREATE INDEX jobs_by_model ON job_models (sha256);
    CREATE TABLE job_files (
        job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size INTEGER NOT NULL,
        PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
    CREATE INDEX files_by_digest ON job_files (sha256);
    """,
)
