"""The server: uploads, jobs on boards, results, over HTTP."""
