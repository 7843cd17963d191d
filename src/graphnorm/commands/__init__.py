"""The commands of the command line, a file each: ``add(parser)`` declares the options, ``run(options)`` does the work.

Nothing here imports torch before ``run`` is called, so that ``--help`` answers at once.
"""
