"""CMSIS-NN as a backend: its functions for the operators that it covers.

The library is the user's own. Nothing of it is part of this package: ``library`` holds the facts
about the user's copy, ``lower`` turns operators into calls, ``scratch`` plans its working memory.
"""

from utvm_deploy.compiler.cmsis_nn.library import CmsisNn
from utvm_deploy.compiler.cmsis_nn.lower import lower_cmsis_nn

__all__ = ["CmsisNn", "lower_cmsis_nn"]
