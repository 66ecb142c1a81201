"""What the verbs that speak to a server share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.results import picked
from utvm_deploy.cli.output import Output
from utvm_deploy.service.client.settings import missing_packages, server_settings

if TYPE_CHECKING:
    from utvm_deploy.service.client.api import Server
    from utvm_deploy.service.client.facts import RemoteFile, RemoteJob

#: The file of a job that every verb has: what it printed with --json.
RESULT = "result.json"


def open_server(args: argparse.Namespace, out: Output) -> Server:
    """The server that the command line or the environment names."""
    try:
        from utvm_deploy.service.client.api import Server
    except ImportError as error:
        raise missing_packages() from error
    return Server(server_settings(args.server), waiting=out.note)


def folder_for(path: Path) -> Path:
    """The folder, made if it is not there. Raises UtvmError."""
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        raise UtvmError(f"{path} is a file; name a folder for what is fetched") from None
    except FileNotFoundError:
        raise UtvmError(f"there is no folder {path.parent}; make it first") from None
    except OSError as error:
        raise UtvmError(f"{path} cannot be made: {error.strerror}; name another folder") from error
    return path


def fetched(
    server: Server, job: RemoteJob, files: Sequence[RemoteFile], folder: Path, out: Output
) -> list[Path]:
    """Download files of a job into a folder, and say so; none if a name is not safe."""
    from utvm_deploy.service.client.download import download, safe_name

    for file in files:
        safe_name(file.name)
    with out.progress() as progress:
        paths = []
        for number, file in enumerate(files):
            progress(f"fetch {file.name}", number, len(files))
            paths.append(download(server, job, file, folder_for(folder)))
    for path, file in zip(paths, files, strict=True):
        out.line(f"wrote {path} ({file.size:,} bytes)")
    return paths


def facts(job: RemoteJob) -> dict[str, Any]:
    """A job as the JSON results of the verbs have it."""
    return {
        "job": job.key,
        **picked(job, "verb", "board", "models", "state", "exit_code", "reason", "run"),
        "files": [
            {"name": file.name, "sha256": file.sha256, "bytes": file.size} for file in job.files
        ],
    }


def label(job: RemoteJob) -> str:
    """Which job of several: its models and its board."""
    models = ", ".join(job.models)
    return f"{models} on {job.board}" if job.board else models
