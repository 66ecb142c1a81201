"""One table of options: of the command line, and of the functions of ``utvm_deploy``."""
