"""utvm bundle: the standalone deliverable for somebody else's firmware."""

from __future__ import annotations

import argparse
from pathlib import Path

import utvm_deploy
from utvm_deploy.bench.oracle import run_reference
from utvm_deploy.bench.samples import Samples, load_golden, random_samples
from utvm_deploy.bundle import FORMATS, check_bundle, write_bundle
from utvm_deploy.cli.arguments import Verbs, add_model, add_name, add_verb, positive
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.reports import memory_line

#: Golden vectors lie in flash of the self-test's image; four show that state does not leak.
DEFAULT_SAMPLES = 4
