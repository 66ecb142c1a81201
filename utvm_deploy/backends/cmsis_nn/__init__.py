"""CMSIS-NN as a backend: its functions for the operators that it covers.

The library is the user's. Nothing of it is part of this package: ``library`` holds the facts about
the user's copy, ``lower`` turns operators into calls, ``scratch`` plans its scratch. Importing this
package only loads the facts; ``lower`` needs TVM.
"""

from utvm_deploy.backends.cmsis_nn.library import CMSIS_NN, MURISCV_NN, CmsisNn, Product

__all__ = ["CMSIS_NN", "MURISCV_NN", "CmsisNn", "Product"]
