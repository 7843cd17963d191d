"""The commands, one module each: ``add(parser)`` declares the options, ``run(options)`` does the work.

They share the ``parser`` and some ``options``.

No module imports torch before ``run`` is called, so that ``--help`` is fast.
"""
