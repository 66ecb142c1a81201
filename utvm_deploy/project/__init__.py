"""A compiled model and a board become a source tree, and the tree an image."""

from utvm_deploy.project.build import build_image, build_project
from utvm_deploy.project.find_backend import (
    Plugins,
    find_ethos_u,
    load_backend,
    load_backends,
    origins_of,
)
from utvm_deploy.project.find_cmsis_nn import find_cmsis_nn, find_cmsis_nn_builds
from utvm_deploy.project.fit import check_fits, check_fits_alone
from utvm_deploy.project.image import Image
from utvm_deploy.project.tree import check_directory, create_project

__all__ = [
    "Image",
    "Plugins",
    "build_image",
    "build_project",
    "check_directory",
    "check_fits",
    "check_fits_alone",
    "create_project",
    "find_cmsis_nn",
    "find_cmsis_nn_builds",
    "find_ethos_u",
    "load_backend",
    "load_backends",
    "origins_of",
]
