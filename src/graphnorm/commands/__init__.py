"""The commands, one module each: ``add(parser)`` declares the options, ``run(options)`` does the work.

No module imports torch before ``run`` is called, so that ``--help`` is fast.
"""
