"""The functions of ``utvm_deploy``: a module for each, and what they return."""
