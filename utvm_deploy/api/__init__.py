"""The functions of ``utvm_deploy``: a module for each, and what they return.

Every result comes from here, so importing this package says how notebooks show results.
"""

from utvm_deploy.results.pages import notebook, pictures

__all__ = ["notebook", "pictures"]

notebook.register()
