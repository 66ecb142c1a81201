"""The bundle: a compiled model as a library for somebody else's firmware.

``write_bundle`` writes a folder or a .zip that needs nothing of utvm_deploy any more;
``check_bundle`` tells whether one is still as it was written. See templates/bundle/README.md for
what a bundle is to the one who gets it.
"""

from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.bundling.layout import FORMATS
from utvm_deploy.bundling.write import check_destination, write_bundle

__all__ = ["FORMATS", "check_bundle", "check_destination", "write_bundle"]
