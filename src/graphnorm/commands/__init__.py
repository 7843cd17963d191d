"""The commands of the command line, a file each: parse, call, print.

A command has ``add(subparsers)``, which adds its parser and sets ``run`` on it; ``run`` takes the parsed arguments.
"""
