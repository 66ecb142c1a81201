"""The bundle: a compiled model as a library for somebody else's firmware.

``write_bundle`` writes a folder or a .zip that does not need utvm_deploy. ``check_bundle`` says
whether one is unchanged. templates/bundle/README.md describes a bundle for its user.
"""

from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.bundling.layout import FORMATS
from utvm_deploy.bundling.write import check_destination, check_format, write_bundle

__all__ = ["FORMATS", "check_bundle", "check_destination", "check_format", "write_bundle"]
