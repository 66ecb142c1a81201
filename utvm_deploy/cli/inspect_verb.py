"""utvm inspect: what a model file holds, and its picture."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from utvm_deploy.bench.inspect import graph_svg, inspect_model
from utvm_deploy.cli.arguments import Verbs, add_model, add_verb
from utvm_deploy.cli.output import Output
from utvm_deploy.files import write_text
from utvm_deploy.frontend.tflite import load_model
