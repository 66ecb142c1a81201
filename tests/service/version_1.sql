BEGIN TRANSACTION;
CREATE TABLE job_files (
        job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
        name TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size INTEGER NOT NULL,
        PRIMARY KEY (job, name)
    ) WITHOUT ROWID;
INSERT INTO "job_files" VALUES('000000000002','model.tar','c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3',1000);
INSERT INTO "job_files" VALUES('000000000002','result.json','d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4',20);
CREATE TABLE job_models (
        job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
        place INTEGER NOT NULL,
        sha256 TEXT NOT NULL REFERENCES models (sha256),
        PRIMARY KEY (job, place)
    ) WITHOUT ROWID;
INSERT INTO "job_models" VALUES('000000000001',0,'a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1');
INSERT INTO "job_models" VALUES('000000000002',0,'a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1');
INSERT INTO "job_models" VALUES('000000000001',1,'b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2');
INSERT INTO "job_models" VALUES('000000000003',0,'b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2');
INSERT INTO "job_models" VALUES('000000000004',0,'b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2');
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
INSERT INTO "jobs" VALUES('000000000001','tune','mps2_an500','{"trials": 40}','running',1700000200.0,1700000201.0,NULL,1,NULL,'','desk','kws',3,40,'');
INSERT INTO "jobs" VALUES('000000000002','compile','host','{"optimize": "size"}','done',1700000210.0,NULL,1700000212.0,1,0,'','','',0,0,'0123456789abcdef');
INSERT INTO "jobs" VALUES('000000000003','verify','host','{}','failed',1700000220.0,NULL,1700000230.0,0,1,'it''s broken','','',0,0,'');
INSERT INTO "jobs" VALUES('000000000004','inspect','','{}','queued',1700000240.0,NULL,NULL,0,NULL,'','','',0,0,'');
CREATE TABLE models (
        sha256 TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        size INTEGER NOT NULL,
        uploaded REAL NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "models" VALUES('a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1','kws.tflite',53936,1700000000.5);
INSERT INTO "models" VALUES('b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2','digits.tflite',9120,1700000100.25);
CREATE INDEX models_by_time ON models (uploaded);
CREATE INDEX jobs_by_time ON jobs (created);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE INDEX jobs_by_board ON jobs (board, created);
CREATE INDEX jobs_by_model ON job_models (sha256);
CREATE INDEX files_by_digest ON job_files (sha256);
COMMIT;
PRAGMA user_version = 1;
