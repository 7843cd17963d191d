"""The larger commands of the command line, one file each; :mod:`graphnorm.cli` lists them."""
