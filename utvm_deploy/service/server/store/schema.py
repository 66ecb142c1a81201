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
    """
    ALTER TABLE models ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
    CREATE TABLE model_files (
        model TEXT NOT NULL REFERENCES models (sha256) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size INTEGER NOT NULL,
        PRIMARY KEY (model, name)
    ) WITHOUT ROWID;
    CREATE INDEX model_files_by_digest ON model_files (sha256);
    ALTER TABLE jobs ADD COLUMN request TEXT NOT NULL DEFAULT '';
    CREATE INDEX jobs_by_request ON jobs (request, created) WHERE request != '';
    CREATE INDEX jobs_by_verb ON jobs (verb, created);
    CREATE INDEX jobs_by_state_and_board ON jobs (state, board, created);
    CREATE INDEX jobs_queued ON jobs (verb, board, created, state) WHERE state = 'queued';
    CREATE INDEX jobs_by_end ON jobs (finished) WHERE finished IS NOT NULL;
    ALTER TABLE job_models ADD COLUMN name TEXT NOT NULL DEFAULT '';
    ALTER TABLE job_models ADD COLUMN created REAL NOT NULL DEFAULT 0;
    UPDATE job_models SET
        name = (SELECT name FROM models WHERE models.sha256 = job_models.sha256),
        created = (SELECT created FROM jobs WHERE jobs.key = job_models.job);
    DROP INDEX jobs_by_model;
    CREATE INDEX jobs_by_model ON job_models (sha256, created, job);
    """,
    """
    CREATE TABLE ended_logins (
        login TEXT PRIMARY KEY,
        expires REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE ends_of_all_logins (ended REAL NOT NULL);
    """,
)
